package hub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// seenWhole reads the listings once and requires every entry to be whole: its
// graph, its extra_data and its workflow.
func (b *bench) seenWhole() {
	b.t.Helper()
	status, body := b.get("/queue")
	require.Equal(b.t, http.StatusOK, status, string(body))
	var q map[string][][]json.RawMessage
	require.NoError(b.t, json.Unmarshal(body, &q), string(body))
	for _, list := range q {
		for _, item := range list {
			require.NotEqual(b.t, "{}", string(item[2]), "an entry without its graph")
			require.Contains(b.t, string(item[3]), "extra_pnginfo", "an entry without its extra_data")
			require.NotEqual(b.t, "[]", string(item[4]))
		}
	}
	for _, j := range b.jobs("").Jobs {
		require.Equal(b.t, "wf-1", j.Workflow, "%s %s", j.ID, j.Status)
	}
	// The end of any job must not make another one disappear from the list of its workflow.
	for _, j := range b.jobs("?workflow_id=wf-1&status=in_progress,pending").Jobs {
		require.Contains(b.t, []string{"in_progress", "pending"}, j.Status)
	}
}

// A listing is made of several queries, and jobs end between them.
func TestListingsWhileJobsEnd(t *testing.T) {
	t.Parallel()
	for name, where := range map[string]func(b *bench){
		"embedded": func(*bench) {},
		"redis":    func(b *bench) { b.id.Redis = redisInMemory(b.t) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := newBench(t, 2, where)
				const jobs = 60
				body := func(n int) string {
					return fmt.Sprintf(`{"prompt": %s, "client_id": "c%d", "extra_data": {"extra_pnginfo": {"workflow": {"id": "wf-1"}}}}`, picture(n), n%5)
				}
				for n := range jobs {
					status, answer := b.post("/prompt", body(n))
					require.Equal(t, http.StatusOK, status, string(answer))
					b.seenWhole()
				}
				eventually(t, func() bool {
					b.seenWhole()
					ended, err := b.hub.queue.Ended(t.Context(), job.DefaultTenant, queue.Page{})
					return err == nil && len(ended) == jobs
				}, time.Minute, time.Millisecond)
			})
		})
	}
}
