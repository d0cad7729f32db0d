package comfy

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// postJobCancel answers POST /api/jobs/{id}/cancel, wherever the job is:
// one that runs is interrupted, one that waits vanishes without a trace.
func (c *cancels) postJobCancel(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	c.cancelJobs(w, r, a, path[:1])
}

// maxBadIDs bounds the ids that an answer repeats.
const maxBadIDs = 1000

// postJobsCancel answers POST /api/jobs/cancel.
func (c *cancels) postJobsCancel(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	body, done, ok := c.ReadBody(w, r, a, api.ListBody)
	if !ok {
		return
	}
	defer done()
	v, err := pyjson.Parse(body)
	if err != nil {
		api.WriteErrorText(w, http.StatusBadRequest, "Request body must be valid JSON")
		return
	}
	o, _ := v.(*pyjson.Object)
	list, _ := o.Get("job_ids")
	named, ok := list.(pyjson.Array)
	if !ok {
		api.WriteErrorText(w, http.StatusBadRequest, "job_ids must be a list")
		return
	}
	var ids, bad []string
	for _, v := range named {
		id, isString := v.(pyjson.String)
		switch u, err := uuid.Parse(string(id)); {
		case isString && err == nil && u.String() == string(id):
			ids = append(ids, string(id))
		case isString:
			bad = append(bad, string(id))
		default:
			bad = append(bad, python.Repr(v))
		}
	}
	if len(bad) > 0 {
		bad = bad[:min(len(bad), maxBadIDs)]
		for n, id := range bad {
			bad[n] = id[:min(len(id), api.MaxName)]
		}
		api.WriteJSON(w, http.StatusBadRequest, pyjson.Marshal(pyjson.NewObject(
			pyjson.Member{Key: "error", Value: pyjson.String("job_ids contains invalid id(s)")},
			pyjson.Member{Key: "invalid_ids", Value: pyjson.Strings(bad)},
		)))
		return
	}
	c.cancelJobs(w, r, a, distinct(ids))
}

// cancelJobs cancels what is the requester's to cancel. Pages send the ids of all
// that they list as running: of several ids a page means its own prompts, of
// one just that, whosever it is.
func (c *cancels) cancelJobs(w http.ResponseWriter, r *http.Request, a api.Requester, ids []string) {
	found, err := c.hub().Jobs.FindLiveAll(r.Context(), a.Tenant, ids)
	if err != nil {
		c.Fail(w, r, err)
		return
	}
	hit := false
	for _, id := range ids {
		done, err := c.cancelJob(r.Context(), a, found[id], len(ids) > 1 && a.Page)
		if err != nil {
			c.Fail(w, r, err)
			return
		}
		hit = hit || done
	}
	api.WriteValue(w, pyjson.NewObject(pyjson.Member{Key: "cancelled", Value: pyjson.Bool(hit)}))
}

// cancelJob stops a job, if it is one, and reports whether there was one to stop.
// strict means the requester's own jobs only.
func (c *cancels) cancelJob(ctx context.Context, a api.Requester, j job.Job, strict bool) (bool, error) {
	if j.Key == "" || strict && !c.owns(a, j) {
		return false, nil
	}
	if j.State == job.Queued {
		gone, err := c.hub().Canceller.CancelWaiting(ctx, j)
		if err != nil {
			return false, err
		}
		if len(gone) > 0 {
			return true, nil
		}
		// An instance took it between the look and the cancel.
		if j, err = c.hub().Jobs.FindRunning(ctx, a.Tenant, j.ID); err != nil || j.Key == "" {
			return false, err
		}
	}
	visible := true
	if a.QueueOne { // what it lists as waiting vanishes, unless its client sees it run
		var err error
		if visible, err = c.shown.sees(ctx, j); err != nil {
			return false, err
		}
	}
	return true, c.takeBackOrStop(ctx, a, j, visible)
}
