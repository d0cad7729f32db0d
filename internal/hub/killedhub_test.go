package hub

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// kill acts like kill -9 for a hub: nothing it does reaches the other hubs any
// more, and it says nothing.
func (b *bench) kill() {
	b.t.Helper()
	require.NoError(b.t, b.hub.db.Close())
	b.stop()
}

// The hub that follows a job is killed. The hub that has the client's socket takes
// the job over, and the client gets one end.
func TestHubIsKilledWhileAnotherHasTheSocket(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		one, two := newPair(t, 1, 0)
		socket := two.dial("ann")
		id := one.submit(work(200, 1, "none"), "ann")
		require.Equal(t, "execution_start", socket.next().Type)
		one.kill()
		two.settings.Instances = one.settings.Instances
		require.NoError(t, two.hub.Start(t.Context(), two.settings))
		types := socket.until(id)
		require.Equal(t, "execution_success", types[len(types)-2])
		require.Contains(t, types, "executed")
		require.Equal(t, 1, started(one), "it was taken over, not run again")
		next := two.submit(picture(5), "ann")
		socket.until(next)
		requireDelivered(t, two, socket, id)
	})
}

// The hub that has the client's socket is killed, and the client connects to the
// other one.
func TestHubWithTheSocketIsKilled(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		one, two := newPair(t, 1, 0)
		socket := two.dial("ann")
		id := one.submit(work(20, 1, "none"), "ann")
		require.Equal(t, "execution_start", socket.next().Type)
		two.kill()
		one.finished(id)
		socket = one.dial("ann")
		types := socket.until(id)
		require.Equal(t, "execution_start", types[0])
		require.Equal(t, "execution_success", types[len(types)-2])
		requireDelivered(t, one, socket, id)
	})
}

// The hub that ran a job is killed before it can report the end, so the end comes
// from the history.
func TestEndOfAKilledHub(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		one, two := newPair(t, 1, 0)
		id := one.submit(picture(3), "ann")
		one.finished(id)
		one.kill()
		// The other hub was never told anything about the job.
		socket := two.dial("ann")
		types := socket.until(id)
		require.Equal(t, "execution_start", types[0])
		require.Contains(t, types, "executed")
		require.Equal(t, "execution_success", types[len(types)-2])
		requireDelivered(t, two, socket, id)
	})
}

// A picture went over a socket only, and the hub that had it is killed. Its client is
// told that the picture is lost, not that all is well, also when it posts the prompt again.
func TestPictureOfAKilledHub(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		one, two := newPair(t, 1, 0)
		graph := strings.Replace(picture(3), "SaveImage", "SaveImageWebsocket", 1)
		id := uuid.NewString()
		post := func(b *bench) {
			status, answer := b.post("/prompt", fmt.Sprintf(`{"prompt": %s, "client_id": "ann", "prompt_id": %q}`, graph, id))
			require.Equal(t, http.StatusOK, status, string(answer))
		}
		post(one)
		one.finished(id)
		one.kill()
		socket := two.dial("ann")
		told := func() {
			t.Helper()
			var types []string
			var last string
			for len(types) == 0 || types[len(types)-1] != "executing" {
				m := socket.next()
				require.Equal(t, id, m.Data.PromptID)
				types = append(types, m.Type)
				if m.Type == "execution_error" {
					last = m.raw
				}
			}
			require.NotContains(t, types, "execution_success")
			require.Contains(t, last, "was lost on its way")
			require.Contains(t, last, `"node_type": "SaveImageWebsocket"`)
		}
		told()
		requireDelivered(t, two, socket, id)
		socket = two.dial("ann")
		post(two)
		told()
	})
}
