package hub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
)

// listedJob is what a test reads of an entry of /hub/jobs.
type listedJob struct {
	ID       string
	Status   string
	Position *int
	Tenant   string
}

// Pages of a tenant's jobs put together are its whole listing, and show nobody else's. The
// operator's pages show everybody's.
func TestJobsPages(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 0, func(b *bench) {
			b.instances = append(b.instances, newInstance(t, sim.Config{TimeScale: 1}))
		})
		post := func(id, graph string) {
			status, answer := b.post("/prompt", fmt.Sprintf(`{"prompt": %s, "prompt_id": %q}`, graph, id))
			require.Equal(t, http.StatusOK, status, string(answer))
		}
		b.tenant = "ann"
		for n := range 3 {
			id := fmt.Sprint("ended-", n)
			post(id, picture(n))
			b.finished(id)
		}
		post("running", endless(1))
		eventually(t, func() bool { return started(b) == 4 }, time.Minute, 5*time.Millisecond)
		for n := range 4 {
			post(fmt.Sprint("waiting-", n), endless(n+2))
		}
		b.tenant = "bob"
		post("bobs", endless(9))
		get := func(query string) (jobs []listedJob) {
			t.Helper()
			status, answer := b.get("/hub/jobs" + query)
			require.Equal(t, http.StatusOK, status, string(answer))
			require.NoError(t, json.Unmarshal(answer, &jobs))
			return jobs
		}
		require.Len(t, get("?limit=1000"), 1)
		b.tenant = "ann"
		all := get("")
		require.Len(t, all, 8)
		require.Equal(t, all[:1], get("?status=running"))
		require.Equal(t, all[1:5], get("?status=queued"))
		require.Equal(t, all[5:], get("?status=ended"))
		require.Equal(t, all[6:7], get("?status=ended&limit=1&offset=1"))
		for size := 1; size <= 9; size++ {
			var paged []listedJob
			for from := 0; from < 9; from += size {
				paged = append(paged, get(fmt.Sprintf("?limit=%d&offset=%d", size, from))...)
			}
			require.Equal(t, all, paged, "pages of %d", size)
		}
		require.Empty(t, get("?offset=1000"))
		require.Empty(t, get("?status=running&offset=1000"))

		views, err := b.hub.Operator().Jobs(t.Context(), JobsPage{Limit: 1000})
		require.NoError(t, err)
		require.Len(t, views, 6, "both tenants' jobs that run and wait")
		stats, err := b.hub.Operator().Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, []any{5, 1, int64(3)}, []any{stats.Waiting, stats.Running, stats.Ended})
		for _, who := range []string{"bob", "ann"} {
			cancelled, err := b.hub.Operator().Cancel(t.Context(), who, "bobs")
			require.NoError(t, err)
			require.Equal(t, who == "bob", cancelled)
		}
		cancelled, err := b.hub.Operator().Cancel(t.Context(), "ann", "running")
		require.NoError(t, err)
		require.True(t, cancelled)
	})
}
