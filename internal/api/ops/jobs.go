package ops

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/view"
)

// getJobs answers GET /hub/jobs: what runs and waits, then what has ended, the
// newest first; or a part of it, see jobsPage; or, for an operator, the jobs with an id.
func (o *room) getJobs(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	query := api.QueryOf(r)
	page, whole, err := jobsPage(query)
	if err != nil {
		api.WriteErrorText(w, http.StatusBadRequest, err.Error())
		return
	}
	var jobs []view.JobView
	switch {
	case query.Has("id") && a.Operator:
		jobs, err = o.hub().Operator.JobsWithID(r.Context(), query.Get("id"))
	case query.Has("id"):
		jobs, err = o.ownJob(r.Context(), a, query.Get("id"))
	case whole:
		jobs, err = o.hub().Insight.Jobs(r.Context(), a.Viewer())
	default:
		jobs, err = o.hub().Insight.JobsPage(r.Context(), a.Viewer(), page)
	}
	if err != nil {
		o.Fail(w, r, err)
		return
	}
	api.WriteListing(w, r, jobList(jobs))
}

// ownJob is the list of the requester's job with an id, empty if there is none.
func (o *room) ownJob(ctx context.Context, a api.Requester, id string) ([]view.JobView, error) {
	j, err := o.hub().Insight.Job(ctx, a.Viewer(), id)
	switch {
	case errors.Is(err, view.ErrNoJob):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return []view.JobView{j}, nil
}

func jobList(jobs []view.JobView) pyjson.Array {
	list := pyjson.Array{}
	for _, j := range jobs {
		list = append(list, jobValue(j))
	}
	return list
}

// JobsJSON is a part of GET /hub/jobs for the operator: everybody's jobs that run and wait, or
// those with an id. An error that is an [ErrPage] is the caller's, others are those of Redis.
func JobsJSON(ctx context.Context, o Operator, query url.Values) ([]byte, error) {
	page, _, err := jobsPage(query)
	if err != nil {
		return nil, err
	}
	var jobs []view.JobView
	if query.Has("id") {
		jobs, err = o.JobsWithID(ctx, query.Get("id"))
	} else {
		jobs, err = o.Jobs(ctx, page)
	}
	return pyjson.Strict(pyjson.Marshal(jobList(jobs))), err
}

// ErrPage says what is wrong with the query of a listing.
var ErrPage = errors.New("want status=running, queued or ended, limit from 1 to " + strconv.Itoa(view.MaxJobsPage) + ", and offset from 0")

// defaultPage is the limit of a page that has none.
const defaultPage = 100

// jobsPage reads ?status=&limit=&offset=. whole means that none of them is there.
func jobsPage(query url.Values) (p view.JobsPage, whole bool, err error) {
	p = view.JobsPage{Which: query.Get("status"), Limit: defaultPage}
	if !slices.Contains([]string{view.PageAll, view.PageRunning, view.PageQueued, view.PageEnded}, p.Which) {
		return p, false, ErrPage
	}
	for _, f := range []struct {
		name        string
		to          *int
		least, most int
	}{{"limit", &p.Limit, 1, view.MaxJobsPage}, {"offset", &p.Offset, 0, math.MaxInt32}} {
		if !query.Has(f.name) {
			continue
		}
		if *f.to, err = strconv.Atoi(query.Get(f.name)); err != nil || *f.to < f.least || *f.to > f.most {
			return p, false, ErrPage
		}
	}
	return p, !query.Has("status") && !query.Has("limit") && !query.Has("offset"), nil
}

// getJob answers GET /hub/jobs/{id}.
func (o *room) getJob(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	j, err := o.hub().Insight.Job(r.Context(), of(r, a), path[0])
	if err != nil {
		o.failJob(w, r, err)
		return
	}
	api.WriteDetail(w, jobValue(j))
}

// failJob answers a request about a job that cannot be shown.
func (o *room) failJob(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, view.ErrNoJob) {
		api.WriteErrorText(w, http.StatusNotFound, "Job not found")
		return
	}
	o.Fail(w, r, err)
}

// jobValue is an entry of /hub/jobs.
func jobValue(j view.JobView) *pyjson.Object {
	entry := pyjson.NewObject(
		pyjson.Member{Key: "id", Value: pyjson.String(j.ID)},
		pyjson.Member{Key: "status", Value: pyjson.String(stateOf(j.State))},
		pyjson.Member{Key: "position", Value: place(j.Position)},
		pyjson.Member{Key: "eta", Value: eta(j)},
		pyjson.Member{Key: "starts_in", Value: inSeconds(j.Begins)},
		pyjson.Member{Key: "instance", Value: stringOrNull(j.Run.Instance)},
		pyjson.Member{Key: "attempts", Value: pyjson.Int(int64(j.Attempts))},
		pyjson.Member{Key: "tenant", Value: pyjson.String(j.Tenant)},
		pyjson.Member{Key: "priority", Value: pyjson.Int(int64(j.Priority))},
		pyjson.Member{Key: "progress", Value: pyjson.Float(progress(j.Job))},
		pyjson.Member{Key: "created_at", Value: seconds(j.CreatedAt)},
		pyjson.Member{Key: "started_at", Value: seconds(j.StartedAt)},
		pyjson.Member{Key: "finished_at", Value: seconds(j.FinishedAt)},
		pyjson.Member{Key: "error", Value: pyjson.String(j.Reason)},
		pyjson.Member{Key: "lost", Value: pyjson.Strings(j.Lost)},
	)
	if band := j.Band(); band != job.Normal {
		entry.Set("band", pyjson.String(band))
	}
	if j.Why != "" {
		entry.Set("why", pyjson.String(j.Why))
	}
	if j.Paused {
		entry.Set("paused", pyjson.Bool(true))
	}
	return entry
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

// stateOf is the state that is shown: what an instance has been given runs.
func stateOf(s job.State) job.State {
	if s == job.Leased {
		return job.Running
	}
	return s
}

// place is a place in the queue, or null.
func place(position int) pyjson.Value {
	if position < 0 {
		return pyjson.Null{}
	}
	return pyjson.Int(int64(position))
}

// eta is how many seconds it will take until a job is finished, or null.
func eta(j view.JobView) pyjson.Value { return inSeconds(j.ETA) }

// inSeconds is a time in seconds, or null for a negative one.
func inSeconds(d time.Duration) pyjson.Value {
	if d < 0 {
		return pyjson.Null{}
	}
	return pyjson.Float(d.Round(10 * time.Millisecond).Seconds())
}

// ownAhead is how many of the caller's own jobs are named that are before another one.
const ownAhead = 20

// ahead tells what will begin before a job that waits: the caller's own jobs by their ids,
// and how many others there are; or null.
func ahead(a *view.Ahead) pyjson.Value {
	if a == nil {
		return pyjson.Null{}
	}
	return pyjson.NewObject(
		pyjson.Member{Key: "own", Value: pyjson.Strings(a.Own[:min(len(a.Own), ownAhead)])},
		pyjson.Member{Key: "own_count", Value: pyjson.Int(int64(len(a.Own)))},
		pyjson.Member{Key: "others_count", Value: pyjson.Int(int64(a.Others))},
	)
}

// seconds is a moment in Unix seconds, or null.
func seconds(ms int64) pyjson.Value {
	if ms == 0 {
		return pyjson.Null{}
	}
	return pyjson.Float(float64(ms) / 1000)
}

// postJobCancel answers POST /hub/jobs/{id}/cancel, wherever the job is.
func (o *room) postJobCancel(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	if o.ofOthers(w, r, a) {
		return
	}
	cancelled, err := o.hub().Canceller.Cancel(r.Context(), of(r, a).Tenant, path[0])
	if err != nil {
		o.Fail(w, r, err)
		return
	}
	api.WriteValue(w, pyjson.NewObject(pyjson.Member{Key: "cancelled", Value: pyjson.Bool(cancelled)}))
}

// postExplain answers POST /hub/explain: why a job waits, or where it is, and
// what speaks for or against each instance.
func (o *room) postExplain(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	body, done, ok := o.ReadBody(w, r, a, api.SmallBody)
	if !ok {
		return
	}
	defer done()
	var ask struct {
		PromptID string `json:"prompt_id"`
	}
	if json.Unmarshal(body, &ask) != nil || ask.PromptID == "" {
		api.WriteErrorText(w, http.StatusBadRequest, "prompt_id is needed as JSON")
		return
	}
	e, err := o.hub().Insight.Explain(r.Context(), of(r, a), ask.PromptID)
	if err != nil {
		o.failJob(w, r, err)
		return
	}
	list := pyjson.Array{}
	for _, c := range e.Candidates {
		list = append(list, pyjson.NewObject(
			pyjson.Member{Key: "name", Value: pyjson.String(c.Name)},
			pyjson.Member{Key: "state", Value: pyjson.String(c.State)},
			pyjson.Member{Key: "can_run", Value: pyjson.Bool(c.Can)},
			pyjson.Member{Key: "why", Value: pyjson.String(c.Why)},
			pyjson.Member{Key: "lacks", Value: pyjson.Strings(c.Lacks)},
			pyjson.Member{Key: "free_in", Value: inSeconds(c.Free)},
		))
	}
	api.WriteDetail(w, pyjson.NewObject(
		pyjson.Member{Key: "id", Value: pyjson.String(e.Job.ID)},
		pyjson.Member{Key: "state", Value: pyjson.String(stateOf(e.Job.State))},
		pyjson.Member{Key: "position", Value: place(e.Job.Position)},
		pyjson.Member{Key: "eta", Value: eta(e.Job)},
		pyjson.Member{Key: "attempts", Value: pyjson.Int(int64(e.Job.Attempts))},
		pyjson.Member{Key: "reason", Value: pyjson.String(e.Job.Reason)},
		pyjson.Member{Key: "ahead", Value: ahead(e.Ahead)},
		pyjson.Member{Key: "instances", Value: list},
	))
}
