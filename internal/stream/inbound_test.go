package stream

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/budget"
)

// What a client has not finished is counted while it is kept, little of it is kept, and
// not for ever.
func TestUnfinishedMessages(t *testing.T) {
	b := budget.New()
	b.Resize(budget.Memory, 1<<20, 1, nil)
	bubble(t, Options{Budget: b, KeepAlive: time.Hour}, func(t *testing.T, r *rig) {
		unfinished := func(first string) *peer {
			p := r.open("/ws")
			if first != "" {
				p.say(websocket.MessageText, first)
			}
			p.settled()
			w := must(p.conn.Writer(t.Context(), websocket.MessageText))
			must(w.Write([]byte(strings.Repeat("x", 8<<10))))
			synctest.Wait()
			return p
		}
		p := unfinished("")
		used := b.Used(budget.Memory)
		require.Greater(t, used, int64(8<<10))
		settled := unfinished(announcement)
		require.Equal(t, used, b.Used(budget.Memory), "nothing is kept of what does not count")
		time.Sleep(messageTime)
		synctest.Wait()
		require.Equal(t, websocket.StatusPolicyViolation, p.closeCode())
		require.Equal(t, websocket.StatusPolicyViolation, settled.closeCode())
		synctest.Wait()
		require.Zero(t, b.Used(budget.Memory))
	})
}

// Messages that nobody needs are read past: clients and custom nodes may send them.
func TestMessagesThatDoNotCount(t *testing.T) {
	features := func() json.RawMessage { return json.RawMessage(`{"hub":true}`) }
	bubble(t, Options{Features: features}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		p.settled()
		p.say(websocket.MessageText, strings.Repeat("x", 1<<20))
		p.say(websocket.MessageBinary, strings.Repeat("x", 1<<20))
		p.say(websocket.MessageText, announcement)
		require.Equal(t, words(string(featuresMessage(features()))), p.settled())
		p.say(websocket.MessageText, strings.Repeat("x", 1<<20))
		p.say(websocket.MessageText, announcement)
		require.Empty(t, p.settled())
		require.NoError(t, p.conn.Ping(t.Context()))
	})
}

func TestMessagesWithoutRoom(t *testing.T) {
	bubble(t, Options{Budget: budget.New()}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		p.settled()
		p.say(websocket.MessageText, announcement)
		require.Empty(t, p.settled(), "there is no room for it")
		require.NoError(t, p.conn.Ping(t.Context()), "and the socket lives on")
	})
}
