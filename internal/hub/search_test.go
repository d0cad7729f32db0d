package hub_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
)

// sought is an answer of GET /hub/search.
type sought struct {
	Jobs []struct {
		ID, Key, Tenant, Status, Error string
		Instance                       *string
	}
	Matched, Looked int
	Next            *string
	Error           string
}

// finds searches and returns the ids of what is found.
func (v *visitor) finds(query string) (ids []string, s sought) {
	v.b.t.Helper()
	status, body := v.send("GET", "/hub/search?"+query, "")
	require.Equal(v.b.t, http.StatusOK, status, string(body))
	require.NoError(v.b.t, json.Unmarshal(body, &s))
	for _, j := range s.Jobs {
		ids = append(ids, j.ID)
	}
	return ids, s
}

// Operators find everybody's jobs by whatever is known of them, also ended ones; others find
// their own only, whatever they ask for.
func TestSearchForJobs(t *testing.T) {
	inBench(t, benchOf(1, func(b *bench) { b.settings.Operators = []string{"root"} }), func(t *testing.T, b *bench) {
		ada, eve, root := b.login("ada"), b.login("eve"), b.login("root")
		failed := ada.submit(work(0.01, 7, "error"), "ada")
		ada.awaits(failed, "failed")
		done := eve.submit(picture(1), "eve")
		eve.awaits(done, "done")
		running := ada.submit(endless(1), "ada")
		ada.awaits(running, "running")
		waiting := eve.submit(picture(2), "eve")
		at := b.hub.Fleet.Instances()[0].Name

		ids, all := root.finds("")
		require.ElementsMatch(t, []string{running, waiting, done, failed}, ids)
		require.Equal(t, 4, all.Looked)
		require.Nil(t, all.Next)
		for query, want := range map[string][]string{
			"tenant=ada":                       {running, failed},
			"text=" + done[:13]:                {done},
			"status=failed,done":               {done, failed},
			"error=" + url.QueryEscape("work"): {failed},
			"error=nothing":                    nil,
			"instance=" + url.QueryEscape(at):  {running, done, failed},
			"since=1&until=2":                  nil,
			"band=normal&status=queued":        {waiting},
			"band=bulk":                        nil,
			"tenant=ada&status=running,done":   {running},
			"text=" + all.Jobs[0].Key:          {all.Jobs[0].ID},
			"limit=2&status=failed,done":       {done, failed},
		} {
			ids, _ := root.finds(query)
			require.ElementsMatch(t, want, ids, query)
		}
		_, count := root.finds("limit=0")
		require.Equal(t, 4, count.Matched)
		require.Empty(t, count.Jobs)
		first, part := root.finds("limit=3")
		require.NotNil(t, part.Next)
		rest, _ := root.finds("limit=3&cursor=" + url.QueryEscape(*part.Next))
		require.ElementsMatch(t, []string{running, waiting, done, failed}, append(first, rest...))

		for query, want := range map[string][]string{"": {running, failed}, "tenant=eve": {running, failed}, "text=" + waiting: nil, "text=" + failed: {failed}} {
			own, _ := ada.finds(query)
			require.ElementsMatch(t, want, own, query)
		}
		// What a tenant may not read it must not find either: not even that an address occurs.
		hidden := b.instances[0].url()
		ids, _ = ada.finds("text=" + url.QueryEscape(hidden))
		require.Empty(t, ids)
		for _, query := range []string{"status=lost", "limit=201", "limit=x", "since=now", "band=x", "tenants=ada", "text=", "text=a&text=b", "cursor=x"} {
			require.Equal(t, http.StatusBadRequest, statusOf(root.send("GET", "/hub/search?"+query, "")), query)
		}
		ada.posts("/interrupt", "")
	})
}

// wholeJob is an answer of GET /hub/jobs/ID/whole.
type wholeJob struct {
	ID, Key, Status, Error, Tenant string
	Attempts                       int
	Graph                          map[string]any
	Outputs                        map[string]any
	Lost                           []string
	LostAt                         []float64 `json:"lost_at"`
	Run                            *struct {
		Messages [][]any `json:"messages"`
	} `json:"status_of_run"`
}

func (v *visitor) whole(path string) (j wholeJob) {
	v.b.t.Helper()
	status, body := v.send("GET", "/hub/jobs/"+path, "")
	require.Equal(v.b.t, http.StatusOK, status, string(body))
	require.NoError(v.b.t, json.Unmarshal(body, &j))
	return j
}

// A job is shown with its graph while it lives, and with its error and what it has made afterwards,
// to its owner and to operators, by its id and by its key.
func TestWholeJob(t *testing.T) {
	inBench(t, benchOf(1, func(b *bench) { b.settings.Operators = []string{"root"} }), func(t *testing.T, b *bench) {
		ada, eve, root := b.login("ada"), b.login("eve"), b.login("root")
		failed := ada.submit(work(0.01, 7, "error"), "ada")
		ada.awaits(failed, "failed")
		running := ada.submit(endless(1), "ada")
		ada.awaits(running, "running")
		waiting := ada.submit(picture(2), "ada")
		for _, id := range []string{failed, running, waiting} {
			own := ada.whole(id + "/whole")
			require.Equal(t, "EmptyImage", own.Graph["1"].(map[string]any)["class_type"])
			require.NotEmpty(t, own.Key)
			require.NotNil(t, own.LostAt)
			require.Len(t, own.LostAt, len(own.Lost))
			for _, path := range []string{id + "/whole?tenant=ada", own.Key + "/whole", own.Key} {
				require.Equal(t, id, root.whole(path).ID, path)
			}
			for _, path := range []string{id, own.Key} {
				require.Equal(t, id, ada.whole(path+"/whole").ID)
				require.Equal(t, http.StatusNotFound, statusOf(eve.send("GET", "/hub/jobs/"+path+"/whole", "")))
				require.Equal(t, http.StatusNotFound, statusOf(eve.send("GET", "/hub/jobs/"+path+"/whole?tenant=ada", "")))
				require.Equal(t, http.StatusNotFound, statusOf(eve.send("POST", "/hub/jobs/"+path+"/again?tenant=ada", "")))
			}
		}
		j := root.whole(failed + "/whole?tenant=ada")
		require.Equal(t, 1, j.Attempts)
		require.NotEmpty(t, j.Error)
		last := j.Run.Messages[len(j.Run.Messages)-1]
		require.Equal(t, "execution_error", last[0])
		require.Contains(t, last[1], "traceback")

		// By its key as by its id.
		key := ada.whole(waiting + "/whole").Key
		status, body := ada.send("PATCH", "/hub/jobs/"+key, `{"priority": 5}`)
		require.Equal(t, http.StatusOK, status, string(body))
		_, body = eve.send("POST", "/hub/jobs/"+key+"/cancel", "")
		require.JSONEq(t, `{"cancelled": false}`, string(body))
		_, body = ada.send("POST", "/hub/jobs/"+key+"/cancel", "")
		require.JSONEq(t, `{"cancelled": true}`, string(body))
		ada.posts("/interrupt", "")
	})
}

// A job that runs again is its tenant's, whoever asked for it, and a new one.
func TestRunAgain(t *testing.T) {
	inBench(t, benchOf(1, func(b *bench) { b.settings.Operators = []string{"root"} }), func(t *testing.T, b *bench) {
		ada, root := b.login("ada"), b.login("root")
		id := ada.submit(picture(3), "ada")
		ada.awaits(id, "done")
		for n, v := range []*visitor{ada, root} {
			var again struct{ ID string }
			require.NoError(t, json.Unmarshal(v.sends("POST", "/hub/jobs/"+id+"/again?tenant=ada", ""), &again))
			require.NotEqual(t, id, again.ID)
			ada.awaits(again.ID, "done")
			require.Equal(t, ada.whole(id+"/whole").Graph, ada.whole(again.ID+"/whole").Graph)
			ids, _ := root.finds("tenant=root")
			require.Empty(t, ids)
			ids, _ = ada.finds("status=done")
			require.Len(t, ids, n+2)
		}
	})
}

// What a filter selects is ended or run again, a part at a time; no filter selects nothing, and nobody
// ends the jobs of others.
func TestActOnFoundJobs(t *testing.T) {
	inBench(t, benchOf(1, func(b *bench) { b.settings.Operators = []string{"root"} }), func(t *testing.T, b *bench) {
		ada, eve, root := b.login("ada"), b.login("eve"), b.login("root")
		running := ada.submit(endless(1), "ada")
		ada.awaits(running, "running")
		for n := range 5 {
			ada.submit(picture(n), "ada")
			eve.submit(picture(n), "eve")
		}
		act := func(v *visitor, path string) (done int, next *string) {
			var answer struct {
				Done   int
				Failed []any
				Next   *string
			}
			require.NoError(t, json.Unmarshal(v.sends("POST", "/hub/search/"+path, ""), &answer))
			require.Empty(t, answer.Failed)
			return answer.Done, answer.Next
		}
		for _, path := range []string{"cancel", "again", "cancel?limit=5", "cancel?statuses=queued", "cancel?cursor=l:x"} {
			require.Equal(t, http.StatusBadRequest, statusOf(root.send("POST", "/hub/search/"+path, "")), path)
		}
		done, _ := act(ada, "cancel?tenant=eve&status=done")
		require.Zero(t, done)
		done, next := act(root, "cancel?tenant=ada&status=queued&limit=3")
		require.Equal(t, 3, done)
		done, next = act(root, "cancel?tenant=ada&status=queued&limit=3&cursor="+url.QueryEscape(*next))
		require.Equal(t, 2, done)
		require.Nil(t, next)
		ids, _ := eve.finds("status=queued")
		require.Len(t, ids, 5, "they are another's")
		done, _ = act(ada, "cancel?tenant=eve&status=queued,running")
		require.Equal(t, 1, done, "her own that runs")
		ada.awaits(running, "cancelled")
		for _, id := range ids {
			eve.awaits(id, "done")
		}
		done, next = act(root, "again?tenant=eve&status=done")
		require.Equal(t, 5, done)
		require.Nil(t, next)
		eventually(t, func() bool {
			ids, _ := eve.finds("status=done")
			return len(ids) == 10
		}, time.Minute, 20*time.Millisecond)
	})
}

// jobsPage is an answer of GET /api/jobs, with everything that web interfaces require.
type jobsPage struct {
	Jobs []struct {
		ID          string
		Status      string
		Priority    json.Number
		CreateTime  *int64         `json:"create_time"`
		Start       int64          `json:"execution_start_time"`
		End         int64          `json:"execution_end_time"`
		Outputs     int            `json:"outputs_count"`
		Previewable *int           `json:"previewable_outputs_count"`
		Preview     map[string]any `json:"preview_output"`
		Error       map[string]any `json:"execution_error"`
		Workflow    any            `json:"workflow_id"`
	}
	Pagination struct {
		Offset, Total int
		Limit         *int
		HasMore       *bool `json:"has_more"`
	}
}

func (b *bench) jobs(query string) jobsPage {
	b.t.Helper()
	page := decoded[jobsPage](b.t, b.gets("/api/jobs"+query))
	for _, j := range page.Jobs {
		require.NotNil(b.t, j.CreateTime)
		require.NotNil(b.t, j.Previewable)
	}
	require.NotNil(b.t, page.Pagination.HasMore)
	return page
}

// ids returns the ids of a page, in order.
func (p jobsPage) ids() []string {
	ids := []string{}
	for _, j := range p.Jobs {
		ids = append(ids, j.ID)
	}
	return ids
}

// submitWith posts a graph with extra_data.
func (b *bench) submitWith(graph, extra string) string {
	b.t.Helper()
	return idOf(b.t, b.posts("/prompt", fmt.Sprintf(`{"prompt": %s, "client_id": "c", "extra_data": %s}`, graph, extra)))
}

// What is shown of jobs that a recorded server lists is in the recordings of routes of jobs. After a prompt
// whose extra_pnginfo is null a real server answers every listing with 500.
func TestJobsListing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		// An instance without a jobs API of its own.
		b := newBench(t, 0, serving(sim.Config{Version: "0.3.64"}))
		good := b.submitWith(picture(1), `{"extra_pnginfo": {"workflow": {"id": "wf-1"}}}`)
		b.finished(good)
		odd := b.submitWith(picture(3), `{"extra_pnginfo": null}`)
		b.finished(odd)
		all := b.jobs("")
		require.Equal(t, []string{odd, good}, all.ids())
		require.Nil(t, all.Jobs[0].Workflow)
		require.Equal(t, "wf-1", all.Jobs[1].Workflow)
		require.Contains(t, b.text("/api/jobs/"+odd), `"status": "completed"`)
		require.NotContains(t, b.text("/api/jobs"), `"workflow":`, "listings are short")
		require.NotContains(t, b.text("/api/jobs/"+good), `"comfyhub"`)
		require.Equal(t, `{"error": "Job not found"}`, string(answered(b.get("/api/jobs/"+url.PathEscape("a/b")))(t, http.StatusNotFound)))
	})
}

// text returns the body of a GET that must succeed.
func (b *bench) text(path string) string {
	b.t.Helper()
	return string(b.gets(path))
}

func TestSummariesTooLargeToKeep(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		// The traceback contains the text that could not be turned into a picture.
		id := b.submitWith(work(0.1, 1, "error"), `{"extra_pnginfo": {"workflow": {"id": "`+strings.Repeat("w", 20<<10)+`"}}}`)
		b.finished(id)
		page := b.jobs("")
		require.Len(t, page.Jobs, 1)
		require.Len(t, page.Jobs[0].Workflow, 20<<10)
		require.Contains(t, page.Jobs[0].Error, "node_id")
	})
}
