package hub

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
)

// failure returns what the execution_error of a history entry says.
func failure(t *testing.T, e entry) (message string, traceback []string) {
	t.Helper()
	require.Equal(t, "error", e.Status.Text)
	for _, m := range e.Status.Messages {
		if string(m[0]) != `"execution_error"` {
			continue
		}
		var data struct {
			Message   string   `json:"exception_message"`
			Traceback []string `json:"traceback"`
		}
		require.NoError(t, json.Unmarshal(m[1], &data))
		return data.Message, data.Traceback
	}
	require.Fail(t, "no execution_error")
	return "", nil
}

// A prompt that kills its process takes down two instances, but not a third.
func TestPromptThatKillsInstancesIsQuarantined(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 0, func(b *bench) {
			for range 3 {
				var i *instance
				i = newInstance(t, sim.Config{OnCrash: func(*sim.Server) { i.die() }})
				b.instances = append(b.instances, i)
			}
		})
		socket := b.dial("ann")
		id := b.submit(work(25, 1, "crash"), "ann")
		types := socket.until(id)
		require.Equal(t, []string{"execution_error", "executing"}, types[len(types)-2:])
		message, attempts := failure(t, b.finished(id))
		require.Contains(t, message, "quarantined: 2 instances died")
		require.Len(t, attempts, 2, "the reason of each attempt: %s", message)
		for _, attempt := range attempts {
			require.Contains(t, attempt, "the instance died at node 2 (SimulatedWork)")
		}
		require.NotEqual(t, attempts[0], attempts[1])
		b.connected(1)
		require.Equal(t, "success", b.finished(b.submit(picture(1), "ann")).Status.Text, "the third one is unharmed")
	})
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
		b.connected(3)
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
