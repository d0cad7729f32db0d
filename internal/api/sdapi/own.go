package sdapi

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/a1111"
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// jobs are the requester's own jobs of this room: those that run, the one that runs longest
// first, then those that wait, in their order.
func (o *room) jobs(ctx context.Context, a api.Requester) ([]job.Job, error) {
	own, err := o.hub().Jobs.LiveOf(ctx, a.Tenant, o.Recent.Owner(a))
	own = slices.DeleteFunc(own, func(j job.Job) bool { return !strings.HasPrefix(j.ID, idPrefix) })
	slices.SortFunc(own, func(x, y job.Job) int {
		switch {
		case isRunning(x) != isRunning(y):
			if isRunning(x) {
				return -1
			}
			return 1
		case isRunning(x) && x.StartedAt != y.StartedAt && x.StartedAt != 0 && y.StartedAt != 0:
			return int(x.StartedAt - y.StartedAt)
		}
		return strings.Compare(x.Rank, y.Rank)
	})
	return own, err
}

// isRunning reports whether an instance has a job.
func isRunning(j job.Job) bool { return j.State == job.Leased || j.State == job.Running }

// server is the server that runs a job, with the query that names the run there; false if it
// cannot be asked.
func (o *room) server(j job.Job) (*comfyui.Client, url.Values, bool) {
	if !isRunning(j) || j.Run.Upstream == "" {
		return nil, nil, false
	}
	client := o.hub().Servers.ClientOf(j.Run.Instance)
	return client, url.Values{a1111.RunKey: {j.Run.Upstream}}, client != nil
}

// tasks answers the routes that are about the requester's jobs.
type tasks struct{ *room }

// postInterrupt answers POST /interrupt: the requester's job that runs longest ends with the
// pictures that it has. One that waits, or cannot be reached, is cancelled.
func (o tasks) postInterrupt(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	own, err := o.jobs(r.Context(), a)
	if err == nil && len(own) > 0 {
		err = o.interrupt(r.Context(), own[0])
	}
	if err != nil {
		o.Fail(w, r, err)
		return
	}
	api.WriteJSON(w, http.StatusOK, []byte("{}"))
}

func (o tasks) interrupt(ctx context.Context, j job.Job) error {
	if server, run, ok := o.server(j); ok {
		_, err := server.Post(ctx, a1111.InterruptPath, run)
		if err == nil {
			return nil
		}
		o.Log().Debug("an instance does not interrupt a run", "error", err)
	}
	return o.hub().Canceller.Stop(ctx, j)
}

// postSkip answers POST /skip: the requester's job that runs longest goes on with its next
// picture.
func (o tasks) postSkip(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	own, err := o.jobs(r.Context(), a)
	if err != nil {
		o.Fail(w, r, err)
		return
	}
	if len(own) > 0 {
		if server, run, ok := o.server(own[0]); ok {
			if _, err := server.Post(r.Context(), a1111.SkipPath, run); err != nil {
				o.Log().Debug("an instance does not skip a picture", "error", err)
			}
		}
	}
	api.WriteValue(w, pyjson.Null{})
}
