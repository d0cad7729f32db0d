package comfyv2

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/view"
)

// The statuses of a job.
const (
	statusQueued    = "queued"
	statusRunning   = "running"
	statusSucceeded = "succeeded"
	statusCanceling = "canceling"
	statusCanceled  = "canceled"
	statusFailed    = "failed"
	// statusExpired is one that this hub never tells: a job that is gone is not found.
	statusExpired = "expired"
)

// statusOf is a state as this room calls it.
func statusOf(s job.State) string {
	switch s {
	case job.Queued:
		return statusQueued
	case job.Leased, job.Running:
		return statusRunning
	case job.Done:
		return statusSucceeded
	case job.Failed:
		return statusFailed
	case job.Cancelled:
	}
	return statusCanceled
}

// failJob answers a request about a job that cannot be shown.
func (o jobs) failJob(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, view.ErrNoJob) {
		refuse(w, http.StatusNotFound, codeNotFound, "There is no such job, or it is not yours.")
		return
	}
	o.Fail(w, r, err)
}

// find is the requester's newest job of an id. One that was cancelled while it waited is found
// for some minutes.
func (o jobs) find(ctx context.Context, a api.Requester, id string) (view.JobView, error) {
	j, err := o.hub().Insight.Job(ctx, a.Viewer(), id)
	if err == nil && j.Withdrawn && j.State.Live() { // its run may not have ended yet
		j = vanished(j)
	}
	return j, err
}

// vanished is a job that was cancelled without a trace.
func vanished(j view.JobView) view.JobView {
	j.State, j.Position, j.ETA = job.Cancelled, -1, -1
	return j
}

// show is a job as its owner sees it, with its outputs once it has ended, and the sizes of so many
// of them.
func (o jobs) show(ctx context.Context, a api.Requester, j view.JobView, sized int) (*pyjson.Object, error) {
	if !j.State.Ended() {
		return o.jobValue(a, j, nil, outcome{}), nil
	}
	ended, err := o.outcome(ctx, a, j.Job)
	if err != nil {
		return nil, err
	}
	outputs, err := o.outputValues(ctx, a, j.ID, ended.outputs, sized)
	if err != nil {
		return nil, err
	}
	return o.jobValue(a, j, outputs, ended), nil
}

// jobValue is a job with these outputs.
func (o jobs) jobValue(a api.Requester, j view.JobView, outputs pyjson.Array, ended outcome) *pyjson.Object {
	if outputs == nil {
		outputs = pyjson.Array{}
	}
	self := a.Base + jobsPath + "/" + url.PathEscape(j.ID)
	shown := object(
		"id", pyjson.String(j.ID),
		"status", pyjson.String(statusOf(j.State)),
		"created_at", moment(time.UnixMilli(j.CreatedAt)),
		"started_at", instant(j.StartedAt),
		"completed_at", instant(j.FinishedAt),
		"expires_at", moment(time.UnixMilli(j.CreatedAt).Add(o.keptFor())),
		"queue_position", place(j.Position),
		"progress", progressOf(j.Job),
		"outputs", outputs,
		"error", errorOf(j.Job, ended.fault),
		"outputs_reused", pyjson.Bool(ended.reused),
		"metrics", metricsOf(j.Job),
		"urls", object("self", pyjson.String(self), "events", pyjson.String(self+"/events"), "cancel", pyjson.String(self+"/cancel")),
	)
	labelOf(j.Job).set(shown)
	return shown
}

// keptFor is how long a job is kept, as far as that is known.
func (o jobs) keptFor() time.Duration {
	if age := o.hub().Settings.HistoryAge; age > 0 {
		return age
	}
	return linkLife
}

// place is the place in the queue, counting from 1, or null.
func place(position int) pyjson.Value {
	if position < 0 {
		return pyjson.Null{}
	}
	return pyjson.Int(int64(position) + 1)
}

// progressOf is the progress of a running job, or null. The hub knows that of the node that runs.
func progressOf(j job.Job) pyjson.Value {
	if j.State != job.Leased && j.State != job.Running {
		return pyjson.Null{}
	}
	return object("value", pyjson.Float(j.Progress), "nodes_done", pyjson.Int(0), "nodes_total", pyjson.Int(0))
}

// errorOf is why a job has failed, or null.
func errorOf(j job.Job, fault *pyjson.Object) pyjson.Value {
	switch {
	case j.State != job.Failed:
		return pyjson.Null{}
	case fault != nil:
		return fault
	}
	return object("code", pyjson.String("job_failed"), "message", pyjson.String(j.Reason), "node_id", pyjson.Null{}, "class_type", pyjson.Null{}, "traceback", pyjson.Null{})
}

// metricsOf is how long a job has waited and run, in milliseconds.
func metricsOf(j job.Job) *pyjson.Object {
	between := func(from, to int64) pyjson.Value {
		if from == 0 || to == 0 {
			return pyjson.Null{}
		}
		return pyjson.Int(max(to-from, 0))
	}
	return object("queue_ms", between(j.CreatedAt, j.StartedAt), "execution_ms", between(j.StartedAt, j.FinishedAt))
}

// getJob answers GET /api/v2/jobs/{id}.
func (o jobs) getJob(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	j, err := o.find(r.Context(), a, path[0])
	var shown *pyjson.Object
	if err == nil {
		shown, err = o.show(r.Context(), a, j, maxSized)
	}
	if err != nil {
		o.failJob(w, r, err)
		return
	}
	api.WriteDetail(w, shown)
}

// postCancel answers POST /api/v2/jobs/{id}/cancel with the job as it is then. One that runs is
// interrupted, which can take a moment.
func (o jobs) postCancel(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	before, err := o.find(r.Context(), a, path[0])
	if err == nil {
		_, err = o.hub().Canceller.Cancel(r.Context(), a.Tenant, path[0])
	}
	var now view.JobView
	if err == nil {
		now, err = o.find(r.Context(), a, path[0])
		if errors.Is(err, view.ErrNoJob) {
			now, err = vanished(before), nil
		}
	}
	var shown *pyjson.Object
	if err == nil {
		shown, err = o.show(r.Context(), a, now, maxSized)
	}
	if err != nil {
		o.failJob(w, r, err)
		return
	}
	if now.State.Live() {
		shown.Set("status", pyjson.String(statusCanceling))
	}
	api.WriteDetail(w, shown)
}

// getWorkflow answers GET /api/v2/jobs/{id}/workflow with the graph that was queued.
func (o jobs) getWorkflow(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	graph, release, err := o.graphOf(r.Context(), a, path[0])
	if err != nil {
		o.failJob(w, r, err)
		return
	}
	defer release()
	// It is not parsed, which takes many times the memory.
	api.WriteJSON(w, http.StatusOK, pyjson.Strict(slices.Concat([]byte(`{"workflow": `), graph, []byte(`, "format": "api"}`))))
}
