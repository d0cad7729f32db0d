package hub

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
	body := b.gets("/api/jobs" + query)
	page := decoded[jobsPage](b.t, body)
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
	answer := b.posts("/prompt", fmt.Sprintf(`{"prompt": %s, "client_id": "c", "extra_data": %s}`, graph, extra))
	return idOf(b.t, answer)
}

func TestJobsListing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		// An instance without a jobs API of its own.
		b := newBench(t, 0, serving(sim.Config{Version: "0.3.64"}))
		require.Equal(t, `{"jobs": [], "pagination": {"offset": 0, "limit": null, "total": 0, "has_more": false}}`, b.text("/api/jobs"))

		good := b.submitWith(picture(1), `{"extra_pnginfo": {"workflow": {"id": "wf-1"}}}`)
		b.finished(good)
		failed := b.submitWith(work(0.1, 2, "error"), `{}`)
		b.finished(failed)
		// From here on, a real server answers every listing with 500.
		odd := b.submitWith(picture(3), `{"extra_pnginfo": null}`)
		b.finished(odd)
		running := b.submitWith(work(3000, 4, "none"), `{}`)
		eventually(t, func() bool { return len(b.jobs("?status=in_progress").Jobs) == 1 }, time.Minute, 10*time.Millisecond)
		<-time.After(time.Second) // or the two are of the same moment
		waiting := b.submitWith(picture(5), `{"extra_pnginfo": {"workflow": {"id": "wf-1"}}}`)

		all := b.jobs("")
		require.Equal(t, []string{waiting, running, odd, failed, good}, all.ids())
		require.Equal(t, "completed", all.Jobs[4].Status)
		require.Equal(t, 1, all.Jobs[4].Outputs)
		require.Equal(t, map[string]any{"filename": "ComfyUI_00001_.png", "subfolder": "", "type": "output", "nodeId": "2", "mediaType": "images"}, all.Jobs[4].Preview)
		require.Equal(t, "wf-1", all.Jobs[4].Workflow)
		require.GreaterOrEqual(t, all.Jobs[4].End, all.Jobs[4].Start)
		require.Equal(t, "failed", all.Jobs[3].Status)
		for _, key := range []string{"node_id", "node_type", "exception_message", "exception_type", "traceback"} {
			require.Contains(t, all.Jobs[3].Error, key)
		}
		require.Nil(t, all.Jobs[2].Workflow)
		require.Equal(t, "pending", all.Jobs[0].Status)

		for query, want := range map[string][]string{
			"?status=in_progress,pending&limit=200&offset=0":        {waiting, running},
			"?status=completed,failed,cancelled&limit=2&offset=1":   {failed, good},
			"?status=%20COMPLETED,":                                 {odd, good},
			"?status=,":                                             {},
			"?workflow_id=wf-1":                                     {waiting, good},
			"?workflow_id=wf-1&status=completed":                    {good},
			"?sort_order=ASC&limit=1":                               {good},
			"?offset=-5&limit=1":                                    {waiting},
			"?offset=99":                                            {},
			"?sort_by=execution_duration&status=completed&limit=+1": nil,
		} {
			page := b.jobs(strings.ReplaceAll(query, "+", "%2B"))
			if want != nil {
				require.Equal(t, want, page.ids(), query)
			}
		}
		page := b.jobs("?limit=2&offset=2")
		require.Equal(t, 5, page.Pagination.Total)
		require.Equal(t, 2, *page.Pagination.Limit)
		require.True(t, *page.Pagination.HasMore)

		// Asking for the same listing again transfers no body.
		resp := b.send(exchange{method: "GET", path: "/api/jobs"})
		read(t, resp)
		again := exchange{method: "GET", path: "/api/jobs", header: map[string]string{"If-None-Match": resp.Header.Get("Etag")}}
		require.Equal(t, http.StatusNotModified, statusOf(read(t, b.send(again))))

		b.oneJob(good, odd, running, waiting)
		b.cancelling(good, running, waiting)
	})
}

// oneJob tests GET /api/jobs/{id}.
func (b *bench) oneJob(good, odd, running, waiting string) {
	t := b.t
	var j struct {
		ID, Status string
		Outputs    map[string]map[string][]map[string]any
		Execution  struct {
			Status    string `json:"status_str"`
			Completed bool
		} `json:"execution_status"`
		Workflow struct {
			Prompt map[string]any
			Extra  map[string]any `json:"extra_data"`
		}
	}
	for _, path := range []string{"/api/jobs/", "/api/api/jobs/"} {
		require.NoError(t, json.Unmarshal([]byte(b.text(path+good)), &j))
		require.Equal(t, "completed", j.Status)
		require.Equal(t, "ComfyUI_00001_.png", j.Outputs["2"]["images"][0]["filename"])
		require.Equal(t, "success", j.Execution.Status)
		require.Len(t, j.Workflow.Prompt, 2)
		require.Equal(t, "c", j.Workflow.Extra["client_id"])
		require.NotContains(t, j.Workflow.Extra, "comfyhub")
	}
	require.Contains(t, b.text("/api/jobs/"+odd), `"status": "completed"`)
	for id, status := range map[string]string{running: "in_progress", waiting: "pending"} {
		j.Workflow.Prompt, j.Workflow.Extra = nil, nil
		require.NoError(t, json.Unmarshal([]byte(b.text("/api/jobs/"+id)), &j))
		require.Equal(t, status, j.Status)
		require.NotEmpty(t, j.Workflow.Prompt, status)
		require.Equal(t, "c", j.Workflow.Extra["client_id"], status)
	}
	require.NotContains(t, b.text("/api/jobs"), `"workflow":`, "listings are short")
	for _, path := range []string{"/api/jobs/nope", "/api/jobs/cancel", "/api/jobs/" + url.PathEscape("a/b")} {
		status, body := b.get(path)
		require.Equal(t, http.StatusNotFound, status)
		require.Equal(t, `{"error": "Job not found"}`, string(body))
	}
	for path, allow := range map[string]string{"/api/jobs": "GET,HEAD", "/api/jobs/" + good: "GET,HEAD", "/api/jobs/cancel": "GET,HEAD,POST"} {
		resp := b.send(exchange{method: "DELETE", path: path})
		require.Equal(t, http.StatusMethodNotAllowed, statusOf(read(t, resp)))
		require.Equal(t, allow, resp.Header.Get("Allow"))
	}
}

// cancelling tests both cancel calls; what they refuse is in the recordings.
func (b *bench) cancelling(ended, running, waiting string) {
	t := b.t
	for id, hit := range map[string]bool{ended: false, waiting: true} {
		body := b.posts("/api/jobs/cancel", `{"job_ids": ["00000000-0000-4000-8000-000000000009", "`+id+`"]}`)
		require.Equal(t, fmt.Sprintf(`{"cancelled": %t}`, hit), string(body))
	}
	require.Equal(t, http.StatusNotFound, statusOf(b.get("/api/jobs/"+waiting)), "a cancelled waiting job vanishes")
	require.Equal(t, "{}", b.text("/history/"+waiting))

	_, body := b.post("/api/jobs/"+running+"/cancel", "")
	require.Equal(t, `{"cancelled": true}`, string(body))
	b.finished(running)
	require.Equal(t, []string{running}, b.jobs("?status=cancelled").ids())
	for _, id := range []string{running, waiting, "nope"} {
		_, body := b.post("/api/jobs/"+id+"/cancel", `{"x": 1}`)
		require.Equal(t, `{"cancelled": false}`, string(body))
	}
}

// text returns the body of a GET that must succeed.
func (b *bench) text(path string) string {
	b.t.Helper()
	body := b.gets(path)
	return string(body)
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

func TestDeletedJobsLeaveTheListing(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		first := b.submit(picture(1), "c")
		b.finished(first)
		second := b.submit(picture(2), "c")
		b.finished(second)
		require.Equal(t, []string{second, first}, b.jobs("").ids())
		b.posts("/history", `{"delete": ["`+second+`"]}`)
		require.Equal(t, []string{first}, b.jobs("").ids())
		third := b.submit(picture(3), "c")
		b.finished(third)
		require.Equal(t, []string{third, first}, b.jobs("").ids())
		b.post("/history", `{"clear": true}`)
		require.Empty(t, b.jobs("").ids())
	})
}

// GET /prompt without a client id counts the jobs posted from the same address, each once.
func TestPromptCountsEachJobOnce(t *testing.T) {
	inBench(t, benchOf(0), func(t *testing.T, b *bench) {
		b.submit(picture(1), "")
		b.submit(picture(2), "")
		b.submit(picture(3), "ann")
		for path, want := range map[string]string{"/prompt": "3", "/prompt?clientId=ann": "1", "/prompt?clientId=bob": "0"} {
			_, body := b.get(path)
			require.Equal(t, `{"exec_info": {"queue_remaining": `+want+`}}`, string(body), path)
		}
	})
}
