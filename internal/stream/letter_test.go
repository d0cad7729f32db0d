package stream

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

func letters() map[string]letter {
	k := Key{Tenant: "tenant", Client: "client"}
	return map[string]letter{
		"events": {
			kind: letterEvents, from: "hub/a", k: k, home: 1 << 40, session: 3, number: 300,
			events: []event{
				{kind: eventBegin, id: 5, prompt: "p", job: "j", fence: 1 << 41, at: -1},
				{kind: eventFrame, id: 5, n: 1, message: Message{Kind: Executing, Node: "2", Data: []byte(`{"type": "executing"}`)}},
				{kind: eventFrame, id: 5, n: 2, message: Message{Kind: Preview, Binary: true, Data: []byte{0, 0, 0, 1}}},
				{kind: eventFrame, id: 5, n: 3, message: Message{Kind: Result, Binary: true, Data: []byte{}}, ref: "reference"},
				{kind: eventFrame, id: 5, n: 4, message: Message{Data: []byte("end")}, final: true},
				{kind: eventEnd, id: 5},
				{kind: eventLost, id: 6},
				{kind: eventSynced, floor: ^uint64(0), jobs: []string{"j", "k"}},
				{kind: eventBeat, floor: 7},
			},
		},
		"again":   {kind: letterAgain, from: "hub/b", k: k, home: 2, session: 3},
		"receipt": {kind: letterReceipt, from: "hub/b", k: k, home: -2, ids: []uint64{1, 1 << 60}},
		"empty":   {kind: letterEvents},
	}
}

func TestLetters(t *testing.T) {
	t.Parallel()
	for name, l := range letters() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := l.appendTo(nil)
			got, err := readLetter(text)
			require.NoError(t, err)
			require.Equal(t, l, got)
			for cut := range text {
				if got, err := readLetter(text[:cut]); err == nil {
					require.Less(t, len(got.events), len(l.events), "a part is not the whole")
				}
			}
		})
	}
}

// Hubs of two versions share a Redis during an upgrade: the bytes of a letter stay
// what they are.
func TestLetterBytes(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"events": "0101056875622f610674656e616e7406636c69656e7480808080804003ac02000e01050170016a80808080808001011d02050101000132007b227479" +
			"7065223a2022657865637574696e67227d0b020502040100000000000110020503050100097265666572656e63650a02050400020000656e64020305" +
			"020406110500ffffffffffffffffff0102016a016b03060007",
		"again":   "0102056875622f620674656e616e7406636c69656e7404030000",
		"receipt": "0103056875622f620674656e616e7406636c69656e740300000201808080808080808010",
		"empty":   "010100000000000000",
	} {
		l := letters()[name]
		require.Equal(t, want, hex.EncodeToString(l.appendTo(nil)), name)
	}
}

func TestLettersOfANewerHub(t *testing.T) {
	t.Parallel()
	l := letters()["events"]
	want := len(l.events)
	l.events = append(l.events, event{kind: 200, id: 1}, event{kind: eventEnd, id: 9})
	got, err := readLetter(l.appendTo(nil))
	require.NoError(t, err)
	require.Len(t, got.events, want+1, "an event of an unknown kind is skipped")
	require.Equal(t, uint64(9), got.events[want].id)
	text := l.appendTo(nil)
	text[0]++
	_, err = readLetter(text)
	require.ErrorIs(t, err, errLetter)
}

func FuzzLetter(f *testing.F) {
	for _, l := range letters() {
		f.Add(l.appendTo(nil))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := readLetter(text)
		if err != nil {
			return
		}
		again, err := readLetter(l.appendTo(nil))
		require.NoError(t, err)
		require.Equal(t, l, again)
		// Whatever it says, it does no harm.
		s := New(Options{})
		k := Key{Client: "c"}
		l.k, l.from = k, "hub"
		s.change(k, true, func(c *client) {
			c.line.attach(func(item) {}, false)
			if c.judge(&l) == accept {
				c.apply(&l)
				c.die("hub")
				c.dropForeign()
			}
			require.True(t, c.line.empty())
		})
		require.NoError(t, s.Close(t.Context()))
	})
}
