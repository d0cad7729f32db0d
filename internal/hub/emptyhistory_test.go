package hub

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
)

// TestInstanceForgetsItsHistory: an instance that was restarted knows nothing of
// its earlier runs. The hub answers from its own record of them, which stays.
func TestInstanceForgetsItsHistory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1)
		c := b.dial("me")
		id := b.submit(picture(7), "me")
		c.until(id)
		// At once: the hub has told the end, so it may need nothing more from the instance.
		b.instances[0].die()
		e := b.finished(id)
		paths := []string{
			"/history", "/history/" + id, "/api/jobs", "/api/jobs/" + id, "/queue",
			"/view?type=output&filename=" + e.Outputs["2"].Images[0].Filename,
		}
		told := func() (out []string) {
			for _, path := range paths {
				status, body := b.get(path)
				require.Equal(t, http.StatusOK, status, path)
				out = append(out, string(body))
			}
			return out
		}
		before := told()
		b.instances[0].revive()
		next := b.submit(picture(8), "me") // runs when the instance is back
		c.until(next)
		require.NotContains(t, before[0], next)
		status, _ := b.post("/history", `{"delete": ["`+next+`"]}`)
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, before, told())
	})
}

// TestRunWithoutTheInstancesRecord: an instance restarts and loses its record of a
// run between the last message and the hub's look at the record. Its messages held
// everything that was in the record, so the run is not lost.
func TestRunWithoutTheInstancesRecord(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		forgets := newInstance(t, sim.Config{})
		front := simtest.Front(t, forgets.url(), func(w http.ResponseWriter, r *http.Request, rest http.Handler) {
			if r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/history/") {
				_, _ = w.Write([]byte("{}"))
				return
			}
			rest.ServeHTTP(w, r)
		})
		without := newBench(t, 0, func(b *bench) { b.settings.Instances = []string{front.URL} })
		with := newBench(t, 1)

		volatile := regexp.MustCompile(`("(?:timestamp|create_time|execution_start_time|execution_end_time)": |"executed": )[^,}\]]+|"traceback": \[[^\]]*\]`)
		for n, graph := range []string{picture(1), picture(1), work(0.01, 2, "error"), picture(3)} {
			id := fmt.Sprintf("prompt-%d", n)
			// Each is another client: one that comes back at once may be shown its last run again.
			me := fmt.Sprint("me", n)
			told := func(b *bench) (messages []string, entry string) {
				c := b.dial(me)
				// The hub has the socket now. What begins before that is shown shortened.
				require.Equal(t, "status", c.any().Type)
				status, body := b.post("/prompt", fmt.Sprintf(`{"prompt": %s, "client_id": %q, "prompt_id": %q}`, graph, me, id))
				require.Equal(t, http.StatusOK, status, string(body))
				messages = c.until(id)
				require.NoError(t, c.conn.CloseNow())
				b.finished(id)
				return messages, volatile.ReplaceAllString(b.text("/history/"+id), "$1")
			}
			wantMessages, wantEntry := told(with)
			messages, entry := told(without)
			require.Equal(t, wantMessages, messages, "%d", n)
			require.Equal(t, wantEntry, entry, "%d", n)
		}
	})
}
