package hub_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/classes"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/logs/logtest"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
)

// strange is a graph with a class that no instance has, and tooSmall one with a width that none takes.
var (
	strange  = strings.Replace(picture(1), "EmptyImage", "NobodyHasThis", 1)
	tooSmall = strings.Replace(picture(1), `"width": 64`, `"width": -5`, 1)
)

// asPrompt is the body of POST /prompt.
func asPrompt(graph string) string { return `{"prompt": ` + graph + `, "client_id": "ann"}` }

// restarted stops a hub that knows no instance, and starts it with some.
func (b *bench) restarted(urls ...string) {
	b.t.Helper()
	b.stop()
	b.settings.Instances = urls
	b.start()
}

// slowToTell is an instance that takes a while to say what it can run.
func slowToTell(t *testing.T, wait func(r *http.Request)) *httptest.Server {
	t.Helper()
	return simtest.Front(t, newInstance(t, sim.Config{}).url(), func(w http.ResponseWriter, r *http.Request, rest http.Handler) {
		list, known := map[string]string{"/extensions": `["/extensions/pack/x.js"]`, "/models/checkpoints": `["a.safetensors"]`}[r.URL.Path]
		if known {
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			_, _ = io.WriteString(w, list)
			return
		}
		if r.URL.Path == "/object_info" {
			wait(r)
		}
		rest.ServeHTTP(w, r)
	})
}

// In its first second a hub knows its instances, but not what they can run: who asks, waits.
func TestFirstSecond(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		front := slowToTell(t, func(*http.Request) { time.Sleep(900 * time.Millisecond) })
		b := newBench(t, 0)
		b.restarted(front.URL)
		var all sync.WaitGroup
		for _, delay := range []time.Duration{0, 100 * time.Millisecond, 500 * time.Millisecond} {
			for path, want := range map[string]string{
				"/object_info": `"KSampler"`, "/api/object_info": `"KSampler"`, "/object_info/KSampler": `"KSampler"`, "/models": `"loras"`, "/models/checkpoints": `"a.safetensors"`,
				"/embeddings": `[`, "/experiment/models": `"loras"`, "/extensions": `/extensions/`,
			} {
				all.Go(func() {
					time.Sleep(delay)
					require.Contains(t, string(answered(b.get(path))(t, http.StatusOK, path)), want, path)
				})
			}
			for graph, want := range map[string]string{strange: "NobodyHasThis", tooSmall: "value_smaller_than_min"} {
				all.Go(func() {
					time.Sleep(delay)
					require.Contains(t, string(answered(b.post("/prompt", asPrompt(graph)))(t, http.StatusBadRequest)), want)
				})
			}
		}
		all.Wait()
		require.Equal(t, "success", b.finished(b.submit(picture(1), "ann")).Status.Text)

		// Killed and restarted, it knows what they could run.
		b.restarted(front.URL)
		answered(b.post("/prompt", asPrompt(strange)))(t, http.StatusBadRequest)
		require.Contains(t, b.text("/object_info"), `"KSampler"`)
	})
}

// An instance that does not say what it can run makes nobody wait for long, and loses no prompt.
func TestInstanceThatTellsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		release := make(chan struct{})
		front := slowToTell(t, func(r *http.Request) {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		})
		b := newBench(t, 0)
		b.restarted(front.URL)
		var all sync.WaitGroup
		var atOnce atomic.Int32
		for range classes.MaxStartingOne + 10 {
			all.Go(func() {
				began := time.Now()
				resp, err := http.Get(b.web.URL + "/object_info")
				require.NoError(t, err)
				body := answered(read(t, resp))(t, http.StatusServiceUnavailable)
				require.Equal(t, "2", resp.Header.Get("Retry-After"))
				answer := decoded[struct{ Error struct{ Type string } }](t, body)
				require.Equal(t, "starting", answer.Error.Type)
				if time.Since(began) < time.Second {
					atOnce.Add(1)
				}
			})
		}
		all.Wait()
		require.GreaterOrEqual(t, atOnce.Load(), int32(10), "a bounded number of one share waits")
		for _, path := range []string{"/models", "/embeddings", "/extensions"} {
			require.Equal(t, http.StatusServiceUnavailable, statusOf(b.get(path)), path)
		}
		good, unknown := b.submit(picture(1), "ann"), b.submit(strange, "ann")
		close(release)
		b.connected(1)
		b.gets("/object_info")
		require.Equal(t, "success", b.finished(good).Status.Text)
		require.Equal(t, "error", b.finished(unknown).Status.Text, "it is checked in the end")
	})
}

// A hub without any instance queues prompts for a fleet that is not up yet, and says so. What is
// wrong with them is found as soon as the fleet is there.
func TestPromptsBeforeTheFleet(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		log := &logtest.Log{}
		b := newBench(t, 0, func(b *bench) { b.log = log })
		require.Equal(t, "{}", b.text("/object_info"))
		c := b.dial("ann")
		unknown, small, good := b.submit(strange, "ann"), b.submit(tooSmall, "ann"), b.submit(picture(2), "ann")
		for _, id := range []string{unknown, small, good} {
			require.Equal(t, "no instance is connected", b.explain(id).Reason)
			require.Contains(t, b.text("/hub/jobs/"+id), "no instance is connected")
		}
		time.Sleep(time.Minute)
		require.Contains(t, b.text("/hub/jobs"), "no instance is connected")
		require.Equal(t, 1, strings.Count(log.String(), "a job waits that no present instance can run"), log.String())
		require.Equal(t, "queued", b.explain(unknown).State)

		b.settings.Instances = []string{newInstance(t, sim.Config{}).url()}
		require.NoError(t, b.hub.Start(t.Context(), b.settings))
		b.connected(1)
		require.Contains(t, b.explain(unknown).Reason, "lacks node class NobodyHasThis")
		for id, want := range map[string]string{unknown: "NobodyHasThis", small: "smaller than min"} {
			e := b.finished(id)
			require.Equal(t, "error", e.Status.Text)
			require.Contains(t, string(must(json.Marshal(e.Status))(t)), want)
		}
		require.Equal(t, "success", b.finished(good).Status.Text)
		ends := map[string]string{}
		for len(ends) < 3 {
			if m := c.next(); m.Type == "execution_error" || m.Type == "execution_success" {
				ends[m.Data.PromptID] = m.Type
			}
		}
		require.Equal(t, map[string]string{unknown: "execution_error", small: "execution_error", good: "execution_success"}, ends)
	})
}

func stateOf(b *bench, i *instance) fleet.State {
	for _, known := range b.hub.Fleet.Instances() {
		if known.URL == i.url() {
			return known.State
		}
	}
	return ""
}

// An instance with an open socket that does not tell at once what it can run is asked again.
func TestInstanceThatStumblesWhenItIsAsked(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var stumbles atomic.Int64
		front := simtest.Front(t, newInstance(t, sim.Config{}).url(), func(w http.ResponseWriter, r *http.Request, rest http.Handler) {
			switch {
			case r.URL.Path == "/ws" && strings.HasPrefix(r.URL.Query().Get("clientId"), "comfyhub-"):
				stumbles.Store(3)
			case r.URL.Path == "/object_info" && stumbles.Add(-1) >= 0:
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			rest.ServeHTTP(w, r)
		})
		b := newBench(t, 0, func(b *bench) { b.settings.Instances = []string{front.URL} })
		require.Negative(t, stumbles.Load())
		b.finished(b.submit(picture(1), "ann"))
	})
}

// A person who sees the progress start over is told why.
func TestWebUISaysWhyAPromptRunsAgain(t *testing.T) {
	inBench(t, benchOf(0, serving(sim.Config{TimeScale: 10})), func(t *testing.T, b *bench) {
		c := b.script().connect("ann")
		require.NoError(t, c.conn.Write(t.Context(), websocket.MessageText, []byte(`{"type": "feature_flags", "data": {"supports_preview_metadata": true}}`)))
		id := b.begins(work(20, 7, "none"), "ann")
		b.instances = append(b.instances, newInstance(t, sim.Config{}))
		b.settings.Instances = append(b.settings.Instances, b.instances[1].url())
		require.NoError(t, b.hub.Start(t.Context(), b.settings))
		b.connected(2)
		b.instances[0].die()

		var notes []string
		for h := c.any(); h.Type != "execution_success"; h = c.any() {
			if f, ok := comfyui.ParseBinary(h.binary); ok && f.Event == comfyui.EventText {
				require.Equal(t, "3", f.Node, "the node that saves")
				notes = append(notes, string(f.Text))
			}
			require.False(t, h.Type == "execution_start" && notes != nil, "after the new start")
		}
		require.Len(t, notes, 2)
		require.Regexp(t, `^Runs again: attempt 1 on .+, .+`, notes[0])
		require.Equal(t, " ", notes[1], "a web UI ignores an empty text, and would show the first one for ever")
		require.Equal(t, "success", b.finished(id).Status.Text)
		require.Equal(t, 2, started(b))
	})
}
