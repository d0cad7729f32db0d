package system_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/system"
	"github.com/comfyhub/comfyhub/system/network"
)

// silences make the n-th server, which has an agent, fall silent for good.
var silences = map[string]func(w *system.World, n int){
	"the agent hangs":        func(w *system.World, n int) { w.Net.Freeze(fmt.Sprint("agent", n)) },
	"the server hangs":       func(w *system.World, n int) { w.Net.Freeze(fmt.Sprint("comfy", n)) },
	"the hub is not heard":   func(w *system.World, n int) { w.Net.Set("hub1", fmt.Sprint("agent", n), network.Link{Silent: true}) },
	"the agent is not heard": func(w *system.World, n int) { w.Net.Set(fmt.Sprint("agent", n), "hub1", network.Link{Silent: true}) },
	"the link swallows": func(w *system.World, n int) {
		w.Net.SetBoth(fmt.Sprint("agent", n), "hub1", network.Link{Silent: true})
	},
}

// forEachSilence runs a scenario in a world of its own for each of them.
func forEachSilence(t *testing.T, scenario func(t *testing.T, fall func(w *system.World, n int))) {
	t.Helper()
	for name, fall := range silences {
		if short(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { scenario(t, fall) })
		})
	}
}

// short reports whether a silence is left out of short runs, such as those with the race
// detector: the code that runs is the same for all.
func short(silence string) bool { return testing.Short() && silence != "the agent is not heard" }

// heal ends what silences began.
func heal(w *system.World, n int) {
	agent := fmt.Sprint("agent", n)
	w.Net.Thaw(agent)
	w.Net.Thaw(fmt.Sprint("comfy", n))
	w.Net.SetBoth(agent, "hub1", network.Link{})
}

// number is the number of a server from 1.
func number(w *system.World, of *system.Comfy) int {
	for n, c := range w.Comfys {
		if c == of {
			return n + 1
		}
	}
	return 0
}

// A server falls silent while it runs a prompt, and another one is idle: the prompt runs
// there. Once it is heard again, both have work.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	forEachSilence(t, func(t *testing.T, fall func(w *system.World, n int)) {
		w := system.New(t, system.Config{Hubs: 1, Comfys: 2, Agents: 2})
		defer w.Close()
		ledger := &system.Ledger{}
		prompt := &system.Prompt{ID: "ann-picture", Client: "ann", Color: 0x123456, Seconds: 60}
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.Client("ann", 1, true, ledger).Ask(prompt)
		}()
		w.Until(time.Minute, "a server runs it", func() bool { return running(w) != nil })
		<-time.After(time.Second)
		silent := number(w, running(w))
		began := time.Now()
		fall(w, silent)
		select {
		case <-done:
		case <-time.After(5 * time.Minute):
			t.Errorf("it has not ended %v later", time.Since(began))
		}
		t.Logf("it took %v from when its server fell silent", time.Since(began).Round(time.Second))
		heal(w, silent)
		bob, eve := asks(w, ledger, "bob", 60), asks(w, ledger, "eve", 60)
		w.Until(2*time.Minute, "both servers run something", func() bool { return w.Comfys[0].Remaining() > 0 && w.Comfys[1].Remaining() > 0 })
		<-bob
		<-eve
		require.Empty(t, ledger.Breaches())
	})
}

// A prompt is cancelled whose server has fallen silent, while nothing else could run it: its
// client is told soon, whatever the server does, and once the server is back it drops the
// prompt.
func TestCancelAtASilentServer(t *testing.T) {
	t.Parallel()
	forEachSilence(t, func(t *testing.T, fall func(w *system.World, n int)) {
		w := system.New(t, system.Config{Hubs: 1, Comfys: 1, Agents: 1})
		defer w.Close()
		hub := w.Hubs[0]
		status, answer := hub.Call(http.MethodPost, "/prompt", `{"prompt_id": "film", "prompt": `+system.Graph(60, 1)+`}`)
		require.Equal(t, http.StatusOK, status, "%s", answer)
		w.Until(time.Minute, "the server runs it", func() bool { return running(w) != nil })
		<-time.After(time.Second)
		fall(w, 1)
		<-time.After(time.Second)
		began := time.Now()
		status, answer = hub.Call(http.MethodPost, "/interrupt", `{"prompt_id": "film"}`)
		require.Equal(t, http.StatusOK, status, "%s", answer)
		w.Until(time.Minute, "it has ended", func() bool {
			_, answer := hub.Call(http.MethodGet, "/history/film", "")
			return strings.Contains(string(answer), "execution_interrupted")
		})
		require.Less(t, time.Since(began), 5*time.Second)
		heal(w, 1)
		w.Until(30*time.Second, "the server has dropped it", func() bool { return running(w) == nil })
	})
}
