package hub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// seenWhole reads the listings once and holds every entry of theirs to be
// whole: its graph, its extra_data and its workflow.
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
	// Nobody's end makes a job vanish from the list of its workflow.
	for _, j := range b.jobs("?workflow_id=wf-1&status=in_progress,pending").Jobs {
		require.Contains(b.t, []string{"in_progress", "pending"}, j.Status)
	}
}

// A listing is made of several questions, and jobs end between them.
func TestListingsWhileJobsEnd(t *testing.T) {
	t.Parallel()
	for name, where := range map[string]func(b *bench){
		"embedded": func(*bench) {},
		"redis":    func(b *bench) { b.id.Redis = redistest.Start(t).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
			require.Eventually(t, func() bool {
				b.seenWhole()
				ended, err := b.hub.queue.Ended(t.Context(), job.DefaultTenant, queue.Page{})
				return err == nil && len(ended) == jobs
			}, time.Minute, time.Millisecond)
		})
	}
}

// What is shown of jobs that end, or are deleted, between two questions.
func TestRowsOfJobsThatEndMeanwhile(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	ctx := t.Context()
	ended := b.submitWith(endless(1), `{"extra_pnginfo": {"workflow": {"id": "wf-1"}}}`)
	require.Eventually(t, func() bool { return started(b) == 1 }, time.Minute, time.Millisecond)
	stays := b.submitWith(endless(2), `{}`)
	deleted := b.submitWith(endless(3), `{}`)
	live, err := b.hub.queue.Live(ctx, job.DefaultTenant)
	require.NoError(t, err)
	require.Len(t, live, 3)
	shown := func(statuses ...string) (out []string) {
		rows := make([]*jobRow, len(live))
		for n, j := range live {
			rows[n] = &jobRow{job: j}
		}
		list, err := b.hub.showJobs(ctx, rows, jobQuery{statuses: statuses})
		require.NoError(t, err)
		for _, v := range list {
			o := v.(*pyjson.Object)
			out = append(out, o.String("id")+" "+o.String("status")+" "+o.String("workflow_id"))
		}
		return out
	}
	b.post("/queue", fmt.Sprintf(`{"delete": [%q]}`, deleted))
	b.post("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, ended))
	b.finished(ended)

	require.Equal(t, []string{ended + " cancelled wf-1", stays + " pending "}, shown(jobInProgress, jobPending, jobCancelled))
	require.Equal(t, []string{stays + " pending "}, shown(jobInProgress, jobPending))
	list := b.hub.newListing(api.Requester{Tenant: job.DefaultTenant})
	require.NoError(t, list.tuples(ctx, live))
	answer := httptest.NewRecorder()
	list.answer(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "/queue", nil), nil)
	list.close()
	var items [][]any
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &items))
	require.Len(t, items, 1)
	require.Equal(t, stays, items[0][1])
}
