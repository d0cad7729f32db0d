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
		again, err := json.Marshal(map[string]any{
			"prompt": json.RawMessage(system.Graph(prompt.Seconds, prompt.Color)), "prompt_id": prompt.ID, "client_id": "ann",
		})
		require.NoError(t, err)
		status, answer := w.Hubs[1].Call(http.MethodPost, "/prompt", string(again))
		require.Equal(t, http.StatusOK, status, "%s", answer)
		w.Net.Set("redis", "hub1", network.Link{})
		<-done
		require.Empty(t, ledger.Breaches())
	})
}
