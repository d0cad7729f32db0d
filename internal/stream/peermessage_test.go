package stream

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/e2e/storedtest"
)

func messages() map[string]peerMessage {
	k := Key{Tenant: "tenant", Client: "client"}
	return map[string]peerMessage{
		"events": {
			kind: peerEvents, from: "hub/a", k: k, owner: 1 << 40, session: 3, number: 300,
			events: []runEvent{
				{kind: runBegin, id: 5, prompt: "p", job: "j", fence: 1 << 41, at: -1},
				{kind: runFrame, id: 5, n: 1, message: Message{Kind: Executing, Node: "2", Data: []byte(`{"type": "executing"}`)}},
				{kind: runFrame, id: 5, n: 2, message: Message{Kind: Preview, Binary: true, Data: []byte{0, 0, 0, 1}}},
				{kind: runFrame, id: 5, n: 3, message: Message{Kind: Result, Binary: true, Data: []byte{}}, ref: "reference"},
				{kind: runFrame, id: 5, n: 4, message: Message{Data: []byte("end")}, final: true},
				{kind: runEnd, id: 5},
				{kind: runLost, id: 6},
				{kind: runSynced, floor: ^uint64(0), jobs: []string{"j", "k"}},
				{kind: runHeartbeat, floor: 7},
			},
		},
		"again":   {kind: peerResend, from: "hub/b", k: k, owner: 2, session: 3},
		"receipt": {kind: peerReceipt, from: "hub/b", k: k, owner: -2, ids: []uint64{1, 1 << 60}},
		"empty":   {kind: peerEvents},
	}
}

func TestPeerMessages(t *testing.T) {
	t.Parallel()
	for name, l := range messages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := l.appendTo(nil)
			got := must(readPeerMessage(text))
			require.Equal(t, l, got)
			for cut := range text {
				if got, err := readPeerMessage(text[:cut]); err == nil {
					require.Less(t, len(got.events), len(l.events), "a part is not the whole")
				}
			}
		})
	}
}

// Hubs of two versions share a Redis during an upgrade, so the encoding of a
// message must not change.
func TestPeerMessageBytes(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"events": "0101056875622f610674656e616e7406636c69656e7480808080804003ac02000e01050170016a80808080808001011d02050101000132007b227479" +
			"7065223a2022657865637574696e67227d0b020502040100000000000110020503050100097265666572656e63650a02050400020000656e64020305" +
			"020406110500ffffffffffffffffff0102016a016b03060007",
		"again":   "0102056875622f620674656e616e7406636c69656e7404030000",
		"receipt": "0103056875622f620674656e616e7406636c69656e740300000201808080808080808010",
		"empty":   "010100000000000000",
	} {
		l := messages()[name]
		require.Equal(t, want, hex.EncodeToString(l.appendTo(nil)), name)
	}
}

func TestPeerMessagesOfANewerHub(t *testing.T) {
	t.Parallel()
	l := messages()["events"]
	want := len(l.events)
	l.events = append(l.events, runEvent{kind: 200, id: 1}, runEvent{kind: runEnd, id: 9})
	got := must(readPeerMessage(l.appendTo(nil)))
	require.Len(t, got.events, want+1, "an event of an unknown kind is skipped")
	require.Equal(t, uint64(9), got.events[want].id)
	text := l.appendTo(nil)
	text[0]++
	_, err := readPeerMessage(text)
	require.ErrorIs(t, err, errPeerMessage)
}

func FuzzPeerMessage(f *testing.F) {
	for _, l := range messages() {
		f.Add(l.appendTo(nil))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := readPeerMessage(text)
		if err != nil {
			return
		}
		require.Equal(t, l, must(readPeerMessage(l.appendTo(nil))))
		// Whatever it says, it does no harm.
		s := New(Options{})
		k := Key{Client: "c"}
		l.k, l.from = k, "hub"
		s.clients.change(k, true, func(c *client) {
			c.line.attach(func(item) {}, false)
			if c.remotes.judge(&l, 0) == accept {
				c.remotes.apply(&l)
				c.remotes.hubDied("hub")
				c.remotes.drop()
			}
			require.True(t, c.line.lists.empty())
		})
		require.NoError(t, s.Close(t.Context()))
	})
}

// Hubs of two versions share a Redis during an upgrade: what the last version sent between its hubs
// can be read, and is written back byte for byte.
func TestMessagesOfTheLastVersion(t *testing.T) {
	t.Parallel()
	stored := must(storedtest.LastVersion())
	kinds := map[runEventKind]bool{}
	for _, p := range stored.Published {
		if !strings.Contains(p.Channel, ":s:to:") {
			continue
		}
		// What package peers wraps it in: a word, and the length of the rest.
		_, message, found := strings.Cut(strings.TrimPrefix(string(p.Payload), "6:letter"), ":")
		require.True(t, found)
		m := must(readPeerMessage([]byte(message)))
		require.Equal(t, Key{Tenant: "ann", Client: "ann"}, m.k)
		require.Equal(t, message, string(m.appendTo(nil)))
		for _, e := range m.events {
			kinds[e.kind] = true
		}
	}
	for _, kind := range []runEventKind{runBegin, runFrame, runSynced} {
		require.True(t, kinds[kind], "the recording has events of kind %d", kind)
	}
}
