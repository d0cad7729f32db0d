package plain

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/view"
)

// The statuses of a job.
const (
	statusQueued     = "queued"
	statusProcessing = "processing"
	statusCompleted  = "completed"
	statusFailed     = "failed"
	statusCancelled  = "cancelled"
)

// statusOf is a state as this room calls it.
func statusOf(s job.State) string {
	switch s {
	case job.Queued:
		return statusQueued
	case job.Leased, job.Running:
		return statusProcessing
	case job.Done:
		return statusCompleted
	case job.Failed:
		return statusFailed
	case job.Cancelled:
	}
	return statusCancelled
}

// failJob answers a request about a job that cannot be shown.
func (o *room) failJob(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, view.ErrNoJob) {
		writeProblem(w, http.StatusNotFound, "Job not found")
		return
	}
	o.Fail(w, r, err)
}

// getStatus answers GET /status/{id}.
func (o *room) getStatus(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	_, shown, err := o.find(r.Context(), a, path[0])
	if err != nil {
		o.failJob(w, r, err)
		return
	}
	api.WriteDetail(w, shown)
}

// find is the requester's newest job of an id, and what it is shown of it.
func (o *room) find(ctx context.Context, a api.Requester, id string) (view.JobView, *pyjson.Object, error) {
	j, err := o.hub().Insight.Job(ctx, a.Viewer(), id)
	if err != nil {
		return j, nil, err
	}
	if j.Withdrawn && j.State.Live() { // its run may not have ended yet
		j.State, j.Position, j.ETA = job.Cancelled, -1, -1
	}
	shown, err := o.show(ctx, a, j)
	return j, shown, err
}

// show is a job as its owner sees it, with its results once it has ended.
func (o *room) show(ctx context.Context, a api.Requester, j view.JobView) (*pyjson.Object, error) {
	shown := jobValue(j)
	if j.State != job.Done && j.State != job.Failed {
		return shown, nil
	}
	ended, err := o.outcome(ctx, a, j.Job)
	if err != nil {
		return nil, err
	}
	if ended.outputs != nil {
		shown.Set("result", ended.value())
	}
	if j.State == job.Failed && j.Reason == "" && ended.fault != "" {
		shown.Set("error", pyjson.String(ended.fault))
	}
	return shown, nil
}

// jobValue is a job without its results.
func jobValue(j view.JobView) *pyjson.Object {
	fault := pyjson.Value(pyjson.Null{})
	if j.State == job.Failed {
		fault = pyjson.String(j.Reason)
	}
	return pyjson.NewObject(
		pyjson.Member{Key: "id", Value: pyjson.String(j.ID)},
		pyjson.Member{Key: "status", Value: pyjson.String(statusOf(j.State))},
		pyjson.Member{Key: "created_at", Value: seconds(j.CreatedAt)},
		pyjson.Member{Key: "started_at", Value: seconds(j.StartedAt)},
		pyjson.Member{Key: "completed_at", Value: seconds(j.FinishedAt)},
		pyjson.Member{Key: "position", Value: place(j.Position)},
		pyjson.Member{Key: "eta", Value: inSeconds(j.ETA)},
		pyjson.Member{Key: "progress", Value: pyjson.Float(progress(j.Job))},
		pyjson.Member{Key: "priority", Value: pyjson.Int(int64(j.Priority))},
		pyjson.Member{Key: "result", Value: pyjson.Null{}},
		pyjson.Member{Key: "error", Value: fault},
	)
}

// progress is how much of a job is done, from 0 to 1. What a node has last reported says
// nothing of a job that waits again or has succeeded.
func progress(j job.Job) float64 {
	switch j.State {
	case job.Done:
		return 1
	case job.Queued:
		return 0
	case job.Leased, job.Running, job.Failed, job.Cancelled:
	}
	return j.Progress
}

// seconds is a moment in Unix seconds, or null.
func seconds(ms int64) pyjson.Value {
	if ms == 0 {
		return pyjson.Null{}
	}
	return pyjson.Float(float64(ms) / 1000)
}

// inSeconds is a time in seconds, or null for a negative one.
func inSeconds(d time.Duration) pyjson.Value {
	if d < 0 {
		return pyjson.Null{}
	}
	return pyjson.Float(d.Round(10 * time.Millisecond).Seconds())
}

// place is how many jobs are before another one, or null.
func place(position int) pyjson.Value {
	if position < 0 {
		return pyjson.Null{}
	}
	return pyjson.Int(int64(position))
}

// postCancel answers POST /cancel/{id}, wherever the job is, with the job as it is then.
// One that runs is interrupted, which can take a moment.
func (o *room) postCancel(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	if _, _, err := o.find(r.Context(), a, path[0]); err != nil {
		o.failJob(w, r, err)
		return
	}
	cancelled, err := o.hub().Canceller.Cancel(r.Context(), a.Tenant, path[0])
	if err != nil {
		o.Fail(w, r, err)
		return
	}
	_, shown, err := o.find(r.Context(), a, path[0])
	if errors.Is(err, view.ErrNoJob) { // it waited, and has left no trace
		shown, err = pyjson.NewObject(
			pyjson.Member{Key: "id", Value: pyjson.String(path[0])},
			pyjson.Member{Key: "status", Value: pyjson.String(statusCancelled)},
		), nil
	}
	if err != nil {
		o.Fail(w, r, err)
		return
	}
	api.WriteDetail(w, pyjson.NewObject(
		pyjson.Member{Key: "id", Value: pyjson.String(path[0])},
		pyjson.Member{Key: "cancelled", Value: pyjson.Bool(cancelled)},
		pyjson.Member{Key: "status", Value: pyjson.String(shown.String("status"))},
	))
}

// getStats answers GET /stats: the requester's own jobs in a few numbers. Of those that have
// ended it counts what the history keeps.
func (o *room) getStats(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	live, err := o.hub().Jobs.Live(r.Context(), a.Tenant)
	var ended []view.EndedJob
	if err == nil {
		ended, err = o.hub().Jobs.Ended(r.Context(), a.Tenant)
	}
	if err != nil {
		o.Fail(w, r, err)
		return
	}
	count := map[string]int64{}
	urgent := int64(0)
	for _, j := range live {
		count[statusOf(j.State)]++
		if j.State == job.Queued && j.Priority > 0 {
			urgent++
		}
	}
	for _, j := range ended {
		count[statusOf(j.Job.State)]++
	}
	api.WriteDetail(w, pyjson.NewObject(
		pyjson.Member{Key: "queued", Value: pyjson.Int(count[statusQueued])},
		pyjson.Member{Key: "priority_queue", Value: pyjson.Int(urgent)},
		pyjson.Member{Key: "standard_queue", Value: pyjson.Int(count[statusQueued] - urgent)},
		pyjson.Member{Key: "processing", Value: pyjson.Int(count[statusProcessing])},
		pyjson.Member{Key: "completed", Value: pyjson.Int(count[statusCompleted])},
		pyjson.Member{Key: "failed", Value: pyjson.Int(count[statusFailed])},
		pyjson.Member{Key: "cancelled", Value: pyjson.Int(count[statusCancelled])},
	))
}
