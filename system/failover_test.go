package system_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/system"
)

// leavings are how a hub can leave.
var leavings = map[string]func(*system.Hub){"restart": (*system.Hub).Stop, "kill": (*system.Hub).Kill}

// afterAFailover lets hub1 do something that the replica lacks, and leave. Then the replica takes
// over, hub1 comes back, and it is checked what has become of that.
func afterAFailover(t *testing.T, do, check func(t *testing.T, w *system.World)) {
	t.Helper()
	for name, leave := range leavings {
		t.Run(name, func(t *testing.T) {
			inWorld(t, system.Config{Hubs: 2, Comfys: 1}, func(w *system.World, _ *system.Ledger) {
				w.Redis.Replicate()
				do(t, w)
				<-time.After(100 * time.Millisecond)
				leave(w.Hubs[0])
				<-time.After(700 * time.Millisecond)
				w.Redis.Failover()
				<-time.After(7 * time.Second)
				w.Hubs[0].Start()
				<-time.After(10 * time.Second) // it looks for what it must put back
				check(t, w)
			})
		})
	}
}

// postTo posts a prompt of so many seconds to the first hub.
func postTo(t *testing.T, h *system.Hub, id string, seconds float64) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"prompt": json.RawMessage(system.Graph(seconds, int(id[len(id)-1]))), "prompt_id": id, "client_id": "ann"})
	require.NoError(t, err)
	status, answer := h.Call(http.MethodPost, "/prompt", string(body))
	require.Equal(t, http.StatusOK, status, "%s", answer)
}

// succeeds waits until a hub has the success of a prompt in the history.
func succeeds(w *system.World, h *system.Hub, id string) {
	w.Until(2*time.Minute, id+" has ended", func() bool {
		_, answer := h.Call(http.MethodGet, "/history/"+id, "")
		return strings.Contains(string(answer), "success")
	})
}

// stays checks that the one prompt that runs is the only one, and that the other is gone.
func stays(t *testing.T, w *system.World, runs, gone string) {
	t.Helper()
	for _, h := range w.Hubs {
		_, answer := h.Call(http.MethodGet, "/queue", "")
		require.Contains(t, string(answer), runs)
		require.NotContains(t, string(answer), gone)
		_, answer = h.Call(http.MethodGet, "/history/"+gone, "")
		require.JSONEq(t, "{}", string(answer))
	}
	succeeds(w, w.Hubs[0], runs)
	require.Equal(t, 1, w.Comfys[0].Started())
}

// The replica that takes over lacks a prompt, and the hub that accepted it was restarted or killed
// before that could be seen. It puts the prompt back once it has started again.
func TestHubLeavesBeforeAFailover(t *testing.T) {
	t.Parallel()
	afterAFailover(t, func(t *testing.T, w *system.World) {
		for n := range 3 { // one runs, two wait
			postTo(t, w.Hubs[0], fmt.Sprint("ann-", n), 15)
		}
	}, func(t *testing.T, w *system.World) {
		for n := range 3 {
			succeeds(w, w.Hubs[1], fmt.Sprint("ann-", n))
		}
		require.Equal(t, 3, w.Comfys[0].Started(), "none runs twice")
	})
}

// The same with an end and its picture.
func TestHubLeavesWithAnEndBeforeAFailover(t *testing.T) {
	t.Parallel()
	afterAFailover(t, func(t *testing.T, w *system.World) {
		postTo(t, w.Hubs[0], "ann-0", 0.2)
		succeeds(w, w.Hubs[0], "ann-0")
	}, func(t *testing.T, w *system.World) {
		succeeds(w, w.Hubs[1], "ann-0")
		status, _ := w.Hubs[1].Call(http.MethodGet, "/view?filename=ComfyUI_00001_.png&type=output", "")
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, 1, w.Comfys[0].Started(), "it does not run twice")
	})
}

// A prompt that was cancelled does not come back, even if the replica lacks only that.
func TestCancelledBeforeAFailover(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]int{"at the same hub": 0, "at another hub": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			afterAFailover(t, func(t *testing.T, w *system.World) {
				postTo(t, w.Hubs[0], "runs", 60)
				postTo(t, w.Hubs[0], "lost", 1)
				w.Redis.Replicate()
				status, answer := w.Hubs[at].Call(http.MethodPost, "/queue", `{"delete": ["lost"]}`)
				require.Equal(t, http.StatusOK, status, "%s", answer)
			}, func(t *testing.T, w *system.World) {
				stays(t, w, "runs", "lost")
			})
		})
	}
}

// Nor does one that was cancelled at another hub while the one that had accepted it was away.
func TestCancelledWhileItsHubIsAway(t *testing.T) {
	inWorld(t, system.Config{Hubs: 2, Comfys: 1}, func(w *system.World, _ *system.Ledger) {
		postTo(t, w.Hubs[1], "runs", 60)
		w.Redis.Replicate()
		postTo(t, w.Hubs[0], "lost", 1)
		w.Hubs[0].Kill()
		status, answer := w.Hubs[1].Call(http.MethodPost, "/queue", `{"delete": ["lost"]}`)
		require.Equal(t, http.StatusOK, status, "%s", answer)
		w.Redis.Failover()
		w.Hubs[0].Start()
		<-time.After(10 * time.Second)
		stays(t, w, "runs", "lost")
	})
}
