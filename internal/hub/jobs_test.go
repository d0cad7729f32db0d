package hub_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

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
		for _, path := range []string{"/api/jobs/nope", "/api/jobs/cancel", "/api/jobs/" + url.PathEscape("a/b")} {
			require.Equal(t, `{"error": "Job not found"}`, string(answered(b.get(path))(t, http.StatusNotFound)))
		}
		// Asking for the same listing again transfers no body.
		resp := b.send(exchange{method: "GET", path: "/api/jobs"})
		read(t, resp)
		again := exchange{method: "GET", path: "/api/jobs", header: map[string]string{"If-None-Match": resp.Header.Get("Etag")}}
		require.Equal(t, http.StatusNotModified, statusOf(read(t, b.send(again))))
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
