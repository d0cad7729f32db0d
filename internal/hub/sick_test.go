package hub

import (
	"context"
	"net/http"
	"net/http/httptest"
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

func impatient(b *bench) { b.settings.StallTimeout = 200 * time.Millisecond }

// givenUp waits until the hub considers its first instance sick, and then makes the hub patient: on
// a busy machine a healthy instance may be silent just as long.
func (b *bench) givenUp() {
	b.t.Helper()
	eventually(b.t, func() bool { return stateOf(b, b.instances[0]) == fleet.Sick }, time.Minute, 10*time.Millisecond)
	b.settings.StallTimeout = 0
	require.NoError(b.t, b.hub.Start(b.t.Context(), b.settings))
}

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

// A run that hangs and ignores interrupts moves to another instance.
func TestHangingRunGoesElsewhere(t *testing.T) {
	inBench(t, benchOf(1, impatient), func(t *testing.T, b *bench) {
		b.instances[0].SetFault(sim.Faults{HangAfterStep: 2})
		id := b.submit(work(5, 1, "none"), "ann")
		b.givenUp()
		spare := newInstance(t, sim.Config{})
		b.settings.Instances = append(b.settings.Instances, spare.url())
		require.NoError(t, b.hub.Start(t.Context(), b.settings))
		require.Equal(t, "success", b.finished(id).Status.Text)
		require.Equal(t, 1, spare.Finished())
	})
}

// failure returns what the execution_error of a history entry says.
func failure(t *testing.T, e entry) (message string, traceback []string) {
	t.Helper()
	require.Equal(t, "error", e.Status.Text)
	for _, m := range e.Status.Messages {
		if string(m[0]) != `"execution_error"` {
			continue
		}
		data := decoded[struct {
			Message   string   `json:"exception_message"`
			Traceback []string `json:"traceback"`
		}](t, m[1])
		return data.Message, data.Traceback
	}
	require.Fail(t, "no execution_error")
	return "", nil
}

// A supervisor restarts the process before anybody looks. The only sign for the
// hub is that the new process does not know the prompt. Deaths of one instance are no
// proof against the prompt, but where there is no other one it has no more than its attempts.
func TestDeathIsSeenAlthoughTheInstanceIsBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1) // the simulator restarts itself
		id := b.submit(work(25, 1, "crash"), "")
		message, attempts := failure(t, b.finished(id))
		require.Contains(t, message, "No instance could finish this prompt")
		require.Len(t, attempts, 3)
		for _, attempt := range attempts {
			require.Contains(t, attempt, "the instance died at node 2 (SimulatedWork), and was restarted")
		}
		require.Equal(t, 3, started(b))
		require.Equal(t, "success", b.finished(b.submit(picture(1), "ann")).Status.Text)
	})
}

// An instance that dies while reading the prompt has not begun to run it.
func TestPromptThatKillsAtThePost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var victims atomic.Int64
		b := newBench(t, 3, func(b *bench) {
			for _, i := range b.instances {
				b.settings.Instances = append(b.settings.Instances, mortal(t, i.url(), func() { victims.Add(1) }))
			}
			b.instances = nil // reached only through the mortal ones
		})
		id := b.submit(picture(1), "ann")
		message, attempts := failure(t, b.finished(id))
		require.Contains(t, message, "quarantined: 2 instances died")
		require.Len(t, attempts, 2, "the reason of each attempt: %s", message)
		require.EqualValues(t, 2, victims.Load())
	})
}

// mortal is an instance whose process dies when it receives a prompt.
func mortal(t *testing.T, real string, died func()) (address string) {
	t.Helper()
	var server *httptest.Server
	server = simtest.Front(t, real, func(w http.ResponseWriter, r *http.Request, proxy http.Handler) {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/prompt") {
			proxy.ServeHTTP(w, r)
			return
		}
		died()
		server.Listener.Close()
		server.CloseClientConnections()
	})
	return server.URL
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
