package hub

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// A person who sees the progress start over is told why.
func TestWebUISaysWhyAPromptRunsAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 0, func(b *bench) {
			b.instances = append(b.instances, newInstance(t, sim.Config{TimeScale: 10}))
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		conn, _, err := websocket.Dial(ctx, b.web.URL+"/ws?clientId=ann", &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {b.web.URL}}})
		require.NoError(t, err)
		defer conn.CloseNow()
		conn.SetReadLimit(-1)
		require.NoError(t, conn.Write(ctx, websocket.MessageText, []byte(`{"type": "feature_flags", "data": {"supports_preview_metadata": true}}`)))
		id := b.submit(work(20, 7, "none"), "ann")
		eventually(t, func() bool { return started(b) == 1 }, time.Minute, time.Millisecond)
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
		t.Log(notes[0], starts)
	})
}
