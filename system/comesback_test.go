package system_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/system"
	"github.com/comfyhub/comfyhub/system/network"
)

// A client leaves a hub that then loses Redis, posts at another one, and comes back while the first
// one still takes itself for the hub that its messages go to. When Redis is back, that hub learns
// that they went elsewhere since: its new socket must not fall silent.
func TestClientComesBackToAHubWithoutRedis(t *testing.T) {
	t.Parallel()
	for name, loses := range map[string]func(w *system.World){
		"its connection": func(w *system.World) { w.Net.Reset("ann", "hub2") },
		"its hub":        func(w *system.World) { w.Hubs[1].Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, system.Config{Hubs: 3, Comfys: 1}, func(w *system.World, ledger *system.Ledger) {
				w.Net.SetBoth("hub1", "comfy1", network.Link{Silent: true})
				at(w, ledger, 0).Ask(&system.Prompt{ID: "ann-1", Client: "ann", Color: 1, Seconds: 0.2})
				w.Net.SetBoth("hub1", "redis", network.Link{Silent: true})
				<-time.After(time.Second)

				ann := at(w, ledger, 1)
				prompt := &system.Prompt{ID: "ann-2", Client: "ann", Color: 2, Seconds: 40}
				done := make(chan struct{})
				go func() {
					defer close(done)
					ann.Ask(prompt)
				}()
				w.Until(time.Minute, "it runs", func() bool { return running(w) != nil })
				<-time.After(time.Second)
				for _, hub := range []string{"hub2", "hub3"} {
					w.Net.SetBoth("ann", hub, network.Link{Silent: true})
				}
				loses(w)
				w.Until(time.Minute, "the client is back", func() bool { return ann.Hub() == 0 })
				<-time.After(5 * time.Second) // the hub gives up telling the others
				for _, hub := range []string{"hub2", "hub3"} {
					w.Net.SetBoth("ann", hub, network.Link{})
				}
				w.Net.SetBoth("hub1", "redis", network.Link{})
				select {
				case <-done:
				case <-time.After(2 * time.Minute):
					require.Fail(t, "nobody tells the client")
				}
				require.False(t, prompt.Told.IsZero())
				require.Zero(t, ann.Hub())
			})
		})
	}
}

// at is ann, who goes to the hub of that number first.
func at(w *system.World, ledger *system.Ledger, hub int) *system.Client {
	for seed := uint64(1); ; seed++ {
		if ann := w.Client("ann", seed, true, ledger); ann.Hub() == hub {
			return ann
		}
	}
}

// A hub is cut off from Redis for good, with the socket of a client whose prompt it runs. Another hub
// takes that over, and the client, who notices nothing of it, hears of its end there.
func TestHubAloneIsCutOffFromRedis(t *testing.T) {
	inWorld(t, system.Config{Hubs: 2, Comfys: 1}, func(w *system.World, ledger *system.Ledger) {
		ann := at(w, ledger, 0)
		prompt := &system.Prompt{ID: "ann-1", Client: "ann", Color: 1, Seconds: 10}
		done := make(chan struct{})
		go func() {
			defer close(done)
			ann.Ask(prompt)
		}()
		w.Until(time.Minute, "it runs", func() bool { return running(w) != nil })
		w.Net.SetBoth("hub1", "redis", network.Link{Silent: true})
		select {
		case <-done:
		case <-time.After(3 * time.Minute):
			require.Fail(t, "nobody tells the client")
		}
		require.False(t, prompt.Told.IsZero())
		w.Net.SetBoth("hub1", "redis", network.Link{})
	})
}
