package system_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/system"
	"github.com/comfyhub/comfyhub/system/network"
)

// A client posts its prompt again, at another hub, because the first one cannot hear Redis.
// Meanwhile the prompt has ended. Both hubs know of an end that was not told, and the
// client's socket is told it once.
func TestPostedAgainAtAnotherHub(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := system.New(t, system.Config{Hubs: 2, Comfys: 1})
		defer w.Close()
		w.Net.SetBoth("hub1", "comfy1", network.Link{Silent: true}) // the other hub runs it
		ledger := &system.Ledger{}
		ann := w.Client("ann", 1, true, ledger)
		for seed := uint64(2); ann.Hub() != 0; seed++ {
			ann = w.Client("ann", seed, true, ledger)
		}
		prompt := &system.Prompt{ID: "ann-picture", Client: "ann", Color: 0x123456, Seconds: 5}
		done := make(chan struct{})
		go func() {
			defer close(done)
			ann.Ask(prompt)
		}()
		w.Until(time.Minute, "the server runs it", func() bool { return running(w) != nil })
		<-time.After(time.Second)
		w.Net.Set("redis", "hub1", network.Link{Silent: true})
		// Not by a look at the history, which would confirm the end.
		w.Until(time.Minute, "it has ended", func() bool { return running(w) == nil })
		<-time.After(time.Second)
		status, answer := w.Hubs[1].Call(http.MethodPost, "/prompt", promptOf(t, prompt))
		require.Equal(t, http.StatusOK, status, "%s", answer)
		w.Net.Set("redis", "hub1", network.Link{})
		<-done
		require.Empty(t, ledger.Breaches())
	})
}

// The answer to a prompt is lost, and it has run when its client posts it again, still waiting for
// an answer and not for messages. All of them are on its socket: nothing comes a second time.
func TestPostedAgainBeforeTheEndIsRead(t *testing.T) {
	inWorld(t, system.Config{Hubs: 1, Comfys: 1}, func(w *system.World, ledger *system.Ledger) {
		w.Net.Set("ann", "hub1", network.Link{Delay: 3 * time.Second}) // for its connections and for what it sends
		prompt := &system.Prompt{ID: "ann-picture", Client: "ann", Color: 0x123456, Seconds: 2}
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.Client("ann", 1, true, ledger).Ask(prompt)
		}()
		<-time.After(7 * time.Second) // it has its socket, and has begun to post
		status, answer := w.Hubs[0].Call(http.MethodPost, "/prompt", promptOf(t, prompt))
		require.Equal(t, http.StatusOK, status, "%s", answer)
		w.Until(4*time.Second, "it has ended", func() bool { return w.Comfys[0].Started() > 0 && running(w) == nil })
		ended := time.Now()
		<-done
		require.True(t, prompt.Accepted.After(ended), "its client still waited for an answer")
		require.False(t, prompt.Told.IsZero())
		require.Equal(t, 1, w.Comfys[0].Started())
	})
}

// promptOf is what a client posts.
func promptOf(t *testing.T, p *system.Prompt) string {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"prompt": json.RawMessage(system.Graph(p.Seconds, p.Color)), "prompt_id": p.ID, "client_id": p.Client,
	})
	require.NoError(t, err)
	return string(body)
}
