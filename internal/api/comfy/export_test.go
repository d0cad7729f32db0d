package comfy

import (
	"context"
	"net/http"
	"net/http/httptest"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Tests of a room on a hub are package comfy_test: package mount, which puts it there, imports this
// one.

// ShowJobs lists jobs as they were found.
func (c *Room) ShowJobs(ctx context.Context, found []job.Job, statuses ...string) (pyjson.Array, error) {
	rows := make([]*jobRow, len(found))
	for n, j := range found {
		rows[n] = &jobRow{job: j}
	}
	return jobLists{shared: c.shared}.showJobs(ctx, api.Requester{Tenant: job.DefaultTenant}, rows, jobQuery{statuses: statuses})
}

// ShowQueue answers with the items of jobs as they were found.
func (c *Room) ShowQueue(ctx context.Context, found []job.Job) (*httptest.ResponseRecorder, error) {
	list := lists{shared: c.shared}.newListing(api.Requester{Tenant: job.DefaultTenant}, nil)
	defer list.close()
	if err := list.tuples(ctx, found); err != nil {
		return nil, err
	}
	answer := httptest.NewRecorder()
	list.answer(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "/queue", nil), nil)
	return answer, nil
}
