package hub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ComfyUI's web UI before the jobs API only adds entries whose number is higher
// than all those in its list. So a job that a younger one has overtaken must get a
// higher number too.
func TestOvertakenJobHasAHigherNumberInTheHistory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 2)
		long := b.submit(endless(1), "ann")
		eventually(t, func() bool { return started(b) == 1 }, time.Minute, 5*time.Millisecond)
		short := b.submit(work(1, 2, "none"), "ann")
		require.Equal(t, "success", b.finished(short).Status.Text)
		status, _ := b.post("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, long))
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, "error", b.finished(long).Status.Text)
		next := b.submit(work(1, 3, "none"), "ann")
		require.Equal(t, "success", b.finished(next).Status.Text)

		var entries map[string]struct {
			Prompt []json.RawMessage `json:"prompt"`
		}
		status, body := b.get("/history")
		require.Equal(t, http.StatusOK, status)
		require.NoError(t, json.Unmarshal(body, &entries))
		numbers := map[string]string{}
		for id, e := range entries {
			require.Len(t, e.Prompt, 5)
			numbers[id] = string(e.Prompt[0])
		}
		require.Equal(t, map[string]string{short: "1", long: "2", next: "3"}, numbers)

		status, body = b.get("/history/" + long)
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, string(body), fmt.Sprintf(`"prompt": [2, %q, `, long))
		status, body = b.get("/api/jobs/" + long)
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, string(body), `"priority": 0`, "elsewhere it keeps its own")
	})
}
