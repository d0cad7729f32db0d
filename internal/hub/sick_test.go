package hub

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
)

func stateOf(b *bench, i *instance) fleet.State {
	for _, known := range b.hub.fleet.Instances() {
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
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 0, serving(sim.Config{TimeScale: 10}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		conn, _, err := websocket.Dial(ctx, b.web.URL+"/ws?clientId=ann", &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {b.web.URL}}})
		require.NoError(t, err)
		defer conn.CloseNow()
		conn.SetReadLimit(-1)
		require.NoError(t, conn.Write(ctx, websocket.MessageText, []byte(`{"type": "feature_flags", "data": {"supports_preview_metadata": true}}`)))
		id := b.begins(work(20, 7, "none"), "ann")
		b.instances = append(b.instances, newInstance(t, sim.Config{}))
		b.settings.Instances = append(b.settings.Instances, b.instances[1].url())
		require.NoError(t, b.hub.Start(t.Context(), b.settings))
		b.connected(2)
		b.instances[0].die()

		var notes []string
		starts := 0
		for {
			kind, data, err := conn.Read(ctx)
			require.NoError(t, err)
			if kind == websocket.MessageBinary {
				if f, ok := comfyui.ParseBinary(data); ok && f.Event == comfyui.EventText {
					require.Equal(t, "3", f.Node, "the node that saves")
					notes = append(notes, string(f.Text))
				}
				continue
			}
			if strings.Contains(string(data), `"execution_start"`) {
				require.Empty(t, notes, "after the new start")
				starts++
			}
			if strings.Contains(string(data), `"execution_success"`) {
				break
			}
		}
		require.Len(t, notes, 2)
		require.Equal(t, " ", notes[1], "a web UI ignores an empty text, and would show the first one for ever")
		require.Regexp(t, `^Runs again: attempt 1 on .+, .+`, notes[0])
		require.Equal(t, "success", b.finished(id).Status.Text)
		require.Equal(t, 2, started(b))
		t.Log(notes[0], starts)
	})
}
