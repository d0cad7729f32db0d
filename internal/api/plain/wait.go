package plain

import (
	"errors"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/view"
)

const (
	// defaultWait is how long GET /wait waits, maxWait how long at most: proxies cut
	// requests that are silent for longer.
	defaultWait = 30 * time.Second
	maxWait     = 5 * time.Minute
)

// waitOf reads the parameter timeout, in seconds.
func waitOf(q url.Values) (time.Duration, bool) {
	if !q.Has("timeout") {
		return defaultWait, true
	}
	n, err := strconv.ParseFloat(q.Get("timeout"), 64)
	if err != nil || math.IsNaN(n) || n < 0 {
		return 0, false
	}
	return time.Duration(min(n, maxWait.Seconds()) * float64(time.Second)), true
}

// getWait answers GET /wait/{id} once the job has ended, or after the timeout with the job
// as it is then.
func (o *room) getWait(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	timeout, ok := waitOf(api.QueryOf(r))
	if !ok {
		writeProblem(w, http.StatusBadRequest, "timeout: must be a number of seconds, 300 at most")
		return
	}
	j, shown, err := o.find(r.Context(), a, path[0])
	if err != nil {
		o.failJob(w, r, err)
		return
	}
	if !j.State.Live() || timeout == 0 {
		api.WriteDetail(w, shown)
		return
	}
	ctx, release, ok := o.Hold(w, r, a)
	if !ok {
		return
	}
	defer release()
	news, stop := o.hub().Watches.Watch(j.Job)
	defer stop()
	alarm := time.NewTimer(timeout)
	defer alarm.Stop()
	for waiting := true; waiting; {
		select {
		case <-ctx.Done():
			waiting = false
		case <-alarm.C:
			waiting = false
		case now, there := <-news:
			waiting = there && now.State.Live()
		}
	}
	o.writeLast(w, r, a, j)
}

// writeLast answers with a job that was there a moment ago.
func (o *room) writeLast(w http.ResponseWriter, r *http.Request, a api.Requester, j view.JobView) {
	_, shown, err := o.find(r.Context(), a, j.ID)
	switch {
	case errors.Is(err, view.ErrNoJob):
		api.WriteDetail(w, vanished(j))
	case err != nil:
		o.Fail(w, r, err)
	default:
		api.WriteDetail(w, shown)
	}
}

// vanished is a job that was cancelled without a trace.
func vanished(j view.JobView) *pyjson.Object {
	j.State, j.Position, j.ETA = job.Cancelled, -1, -1
	return jobValue(j)
}

// getEvents answers GET /events/{id} with server-sent events: queued, started, progress and,
// at the end, done. The data of each is the job. It begins with the job as it is, so that
// a client that connects again misses nothing that counts.
func (o *room) getEvents(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	j, shown, err := o.find(r.Context(), a, path[0])
	if err != nil {
		o.failJob(w, r, err)
		return
	}
	ctx, release, ok := o.Hold(w, r, a)
	if !ok {
		return
	}
	defer release()
	news, stop := o.hub().Watches.Watch(j.Job)
	defer stop()
	out := api.WriteEvents(w)
	defer out.Close()
	if r.Method == http.MethodHead || write(out, eventOf(j.State), shown) != nil {
		return
	}
	tick := time.NewTicker(api.EventBeat)
	defer tick.Stop()
	for j.State.Live() {
		before := j
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if out.Beat() != nil {
				return
			}
			continue
		case now, there := <-news:
			if there {
				j, shown, err = o.find(ctx, a, now.ID)
			}
			if !there || errors.Is(err, view.ErrNoJob) || err == nil && j.Key != before.Key {
				_ = write(out, eventDone, vanished(before))
				return
			}
			if err != nil { // the client connects again
				return
			}
		}
		event := eventOf(j.State)
		if event == eventStarted && before.State != job.Queued && before.StartedAt == j.StartedAt {
			event = eventProgress
		}
		if write(out, event, shown) != nil {
			return
		}
	}
}

// The events of a job.
const (
	eventQueued   = "queued"
	eventStarted  = "started"
	eventProgress = "progress"
	eventDone     = "done"
)

// eventOf is the event by which a job gets into a state.
func eventOf(s job.State) string {
	switch s {
	case job.Queued:
		return eventQueued
	case job.Leased, job.Running:
		return eventStarted
	case job.Done, job.Failed, job.Cancelled:
	}
	return eventDone
}

// write sends an event about a job.
func write(out api.EventWriter, event string, shown *pyjson.Object) error {
	return out.Send(event, pyjson.Strict(pyjson.Marshal(shown)))
}
