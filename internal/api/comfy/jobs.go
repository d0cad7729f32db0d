package comfy

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/view"
)

// The jobs API is what current web interfaces show the queue and the history
// with. The hub answers it from its own records, whatever its instances'
// versions are, and always in the newest shape: only new clients ask for it.

// jobRow is a job in a listing before it is written out.
type jobRow struct {
	job job.Job
	// stored is the summary kept beside an ended job's entry.
	stored []byte
	// summary is the parsed one; nil while nobody needed it.
	summary *pyjson.Object
	whole   bool
	// gone says that the job was removed while the listing was made.
	gone bool
}

func (r *jobRow) parsed() *pyjson.Object {
	if r.summary == nil {
		r.summary, r.whole = comfyui.ParseSummary(r.stored)
	}
	return r.summary
}

// duration is the time between start and end in milliseconds, 0 if unknown.
func (r *jobRow) duration() float64 {
	if !r.job.State.Ended() {
		return 0
	}
	start, end := millis(r.parsed(), "execution_start_time"), millis(r.parsed(), "execution_end_time")
	if start == 0 || end == 0 {
		return 0
	}
	return end - start
}

func millis(o *pyjson.Object, key string) float64 {
	v, _ := o.Get(key)
	n, ok := v.(pyjson.Number)
	if !ok {
		return 0
	}
	return n.Float64()
}

// jobLists answers the routes of the jobs API.
type jobLists struct {
	shared

	shown    shown
	receipts receipts
}

// getJobs answers GET /api/jobs.
func (l jobLists) getJobs(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	q, fault := parseJobQuery(api.QueryOf(r))
	if fault != "" {
		api.WriteErrorText(w, http.StatusBadRequest, fault)
		return
	}
	rows, err := l.jobRows(r.Context(), a, q)
	if err == nil && q.workflow != "" {
		rows, err = l.ofWorkflow(r.Context(), a, rows, q)
	}
	if err != nil {
		l.RefuseBody(w, r, a.Share(), api.SmallBody, err)
		return
	}
	sortJobs(rows, q)
	total := len(rows)
	rows = rows[min(q.offset, total):]
	limit := pyjson.Value(pyjson.Null{})
	if q.limit > 0 {
		limit = pyjson.Int(int64(q.limit))
		rows = rows[:min(q.limit, len(rows))]
	}
	shown, err := l.showJobs(r.Context(), a, rows, q)
	if err != nil {
		l.RefuseBody(w, r, a.Share(), api.SmallBody, err)
		return
	}
	api.WriteListing(w, r, pyjson.NewObject(
		pyjson.Member{Key: "jobs", Value: shown},
		pyjson.Member{Key: "pagination", Value: pyjson.NewObject(
			pyjson.Member{Key: "offset", Value: pyjson.Int(int64(q.offset))},
			pyjson.Member{Key: "limit", Value: limit},
			pyjson.Member{Key: "total", Value: pyjson.Int(int64(total))},
			pyjson.Member{Key: "has_more", Value: pyjson.Bool(min(q.offset, total)+len(rows) < total)},
		)},
	))
}

// jobRows collects the tenant's jobs of the wanted statuses: running, waiting,
// ended. What runs is read before what has ended, so that a job that ends
// meanwhile is found twice rather than not at all.
func (l jobLists) jobRows(ctx context.Context, a api.Requester, q jobQuery) ([]*jobRow, error) {
	var rows []*jobRow
	if q.wants(jobInProgress) || q.wants(jobPending) {
		live, err := l.hub().Jobs.Live(ctx, a.Tenant)
		if err != nil {
			return nil, err
		}
		live = l.shown.asListed(a, live)
		slices.SortStableFunc(live, func(a, b job.Job) int {
			return cmp.Compare(rankOf(a.State != job.Queued), rankOf(b.State != job.Queued))
		})
		for _, j := range live {
			if q.wants(jobStatus(j.State)) {
				rows = append(rows, &jobRow{job: j})
			}
		}
	}
	if !q.wants(jobCompleted) && !q.wants(jobFailed) && !q.wants(jobCancelled) {
		return rows, nil
	}
	ended, err := l.hub().Jobs.Ended(ctx, a.Tenant)
	if err != nil {
		return nil, err
	}
	over := make(map[string]bool, len(ended))
	for _, e := range ended {
		over[e.Job.Key] = true
	}
	rows = slices.DeleteFunc(rows, func(r *jobRow) bool { return over[r.job.Key] })
	for _, e := range ended {
		if q.wants(jobStatus(e.Job.State)) {
			rows = append(rows, &jobRow{job: e.Job, stored: e.Summary})
		}
	}
	return rows, nil
}

// ofWorkflow keeps the jobs of one workflow.
func (l jobLists) ofWorkflow(ctx context.Context, a api.Requester, rows []*jobRow, q jobQuery) ([]*jobRow, error) {
	live, err := l.workflows(ctx, a, rows)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(present(rows, q), func(r *jobRow) bool {
		var id pyjson.Value
		if r.job.State.Ended() {
			id, _ = r.parsed().Get("workflow_id")
		} else {
			id = live[r.job.Key]
		}
		return id != pyjson.Value(pyjson.String(q.workflow))
	}), nil
}

// sortJobs orders as ComfyUI does: equals keep their order, in both directions.
func sortJobs(rows []*jobRow, q jobQuery) {
	slices.SortStableFunc(rows, func(a, b *jobRow) int {
		c := cmp.Compare(a.job.CreatedAt, b.job.CreatedAt)
		if q.byDuration {
			c = cmp.Compare(a.duration(), b.duration())
		}
		if !q.ascending {
			c = -c
		}
		return c
	})
}

// showJobs writes out the rows of a page.
func (l jobLists) showJobs(ctx context.Context, a api.Requester, rows []*jobRow, q jobQuery) (pyjson.Array, error) {
	live, err := l.workflows(ctx, a, rows)
	if err != nil {
		return nil, err
	}
	shown := pyjson.Array{}
	for _, row := range present(rows, q) {
		if !row.job.State.Ended() {
			shown = append(shown, liveJob(row.job, live[row.job.Key]))
			continue
		}
		summary := row.parsed()
		if !row.whole {
			entry, err := l.hub().Jobs.HistoryEntry(ctx, row.job.Tenant, row.job.ID)
			if errors.Is(err, view.ErrNoJob) {
				continue // deleted just now
			}
			if err != nil {
				return nil, err
			}
			if raw, err := entry.JSON(); err == nil {
				summary = comfyui.Summarize(raw)
			}
		}
		shown = append(shown, endedJob(row.job, summary))
	}
	return shown, nil
}

// workflows returns the workflow ids of those rows that wait or run, by key, with one body in memory
// at a time. A row whose body is gone has ended since: it becomes that of the ended job, or a gone one.
func (l jobLists) workflows(ctx context.Context, a api.Requester, rows []*jobRow) (map[string]pyjson.Value, error) {
	byKey := map[string]*jobRow{}
	var keys []string
	for _, r := range rows {
		if !r.job.State.Ended() {
			keys, byKey[r.job.Key] = append(keys, r.job.Key), r
		}
	}
	ids := make(map[string]pyjson.Value, len(keys))
	err := l.hub().Jobs.EachBody(ctx, a.Tenant, keys, func(stored view.StoredBody) error {
		release, err := l.Intake.Reserve(ctx, a.Share(), 3*stored.Size())
		if err != nil {
			return err
		}
		defer release()
		body, err := stored.Read()
		if err != nil {
			l.Log().Error("a job's body cannot be read", "job", stored.Key, "error", err)
		}
		ids[stored.Key] = comfyui.WorkflowID(body.Extra)
		delete(byKey, stored.Key)
		return nil
	})
	if err != nil || len(byKey) == 0 {
		return ids, err
	}
	ended, err := l.hub().Jobs.EndedOf(ctx, slices.Collect(maps.Keys(byKey)))
	for _, r := range byKey {
		r.gone = true
	}
	for _, e := range ended {
		r := byKey[e.Job.Key]
		r.job, r.stored, r.gone = e.Job, e.Summary, false
	}
	return ids, err
}

// present are the rows that are still there and of the wanted statuses.
func present(rows []*jobRow, q jobQuery) []*jobRow {
	return slices.DeleteFunc(rows, func(r *jobRow) bool { return r.gone || !q.wants(jobStatus(r.job.State)) })
}

func jobHead(j job.Job) *pyjson.Object {
	return pyjson.NewObject(
		pyjson.Member{Key: "id", Value: pyjson.String(j.ID)},
		pyjson.Member{Key: "status", Value: pyjson.String(jobStatus(j.State))},
		pyjson.Member{Key: "priority", Value: pyjson.Number(j.Number)},
		pyjson.Member{Key: "create_time", Value: pyjson.Int(j.CreatedAt)},
	)
}

func liveJob(j job.Job, workflow pyjson.Value) *pyjson.Object {
	o := jobHead(j)
	o.Set("outputs_count", pyjson.Int(0))
	o.Set("previewable_outputs_count", pyjson.Int(0))
	if workflow != nil {
		o.Set("workflow_id", workflow)
	}
	comfyui.ShapeJob(o)
	return o
}

func endedJob(j job.Job, summary *pyjson.Object) *pyjson.Object {
	o := jobHead(j)
	for key, v := range summary.All() {
		o.Set(key, v)
	}
	comfyui.ShapeJob(o)
	return o
}

// getJob answers GET /api/jobs/{id}: a job with its graph, an ended one with its outputs,
// too.
func (l jobLists) getJob(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	j, err := l.hub().Jobs.Look(r.Context(), a.Tenant, path[0])
	if errors.Is(err, view.ErrNoJob) {
		api.WriteErrorText(w, http.StatusNotFound, "Job not found")
		return
	}
	var shown *pyjson.Object
	switch {
	case err != nil:
	case j.State.Ended():
		shown, err = endedJobWhole(j)
	default:
		shown, err = l.liveJobWhole(r.Context(), a, j)
	}
	if err != nil {
		l.Fail(w, r, err)
		return
	}
	api.WriteDetail(w, shown)
	if j.State.Ended() {
		l.receipts.fetched(a, j.Entry)
	}
}

// liveJobWhole is a waiting or running job as the requester's listings show it.
func (l jobLists) liveJobWhole(ctx context.Context, a api.Requester, j view.FoundJob) (*pyjson.Object, error) {
	if a.QueueOne && j.State != job.Queued {
		one, err := l.shown.listedRunning(ctx, a)
		if err != nil {
			return nil, err
		}
		if one != j.Key {
			j.State = job.Queued
		}
	}
	o := liveJob(j.Job, comfyui.WorkflowID(j.Body.Extra))
	setWorkflow(o, j.Body.Prompt, j.Body.Extra)
	return o, nil
}

// setWorkflow adds what the job was posted with. Listings leave it out.
func setWorkflow(o *pyjson.Object, prompt, extra []byte) {
	o.Set("workflow", pyjson.NewObject(
		pyjson.Member{Key: "prompt", Value: valueOf(prompt)},
		pyjson.Member{Key: "extra_data", Value: valueOf(extra)},
	))
}

// endedJobWhole is an ended job with its outputs and its graph.
func endedJobWhole(j view.FoundJob) (*pyjson.Object, error) {
	raw, err := j.Entry.JSON()
	if err != nil {
		return nil, err
	}
	parts, _ := comfyui.ParseEntry(raw)
	o := endedJob(j.Job, comfyui.Summarize(raw))
	o.Set("outputs", comfyui.NormalizeOutputs(parts.Outputs))
	o.Set("execution_status", valueOf(parts.StatusRaw))
	setWorkflow(o, parts.Graph, parts.Extra)
	return o, nil
}

// valueOf reads raw JSON; what is missing or damaged is null.
func valueOf(raw []byte) pyjson.Value {
	v, err := pyjson.Parse(raw)
	if err != nil {
		return pyjson.Null{}
	}
	return v
}
