package sim

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// job is a prompt as the jobs API represents it.
type job struct {
	object   *pyjson.Object
	id       string
	status   string
	created  float64
	duration float64
	workflow pyjson.Value
	entry    *pyjson.Object // of the history, nil while unfinished
}

// jobQuery is the parsed query of GET /api/jobs.
type jobQuery struct {
	statuses      []string // nil means all
	workflow      string
	byDuration    bool
	ascending     bool
	limit, offset int // limit is 0 without one
}

// jobRoutes shows the queue and the history as one list of jobs.
type jobRoutes struct {
	bodyLimit
	feat        features
	queue       *queue
	interrupted *atomic.Bool
}

func (l *jobRoutes) statuses() []string {
	all := []string{"pending", "in_progress", "completed", "failed"}
	if l.feat.cancelledStatus {
		all = append(all, "cancelled")
	}
	return all
}

// parseJobQuery parses the query. A non-empty text says what is wrong with it.
func (l *jobRoutes) parseJobQuery(q url.Values) (jobQuery, string) {
	out := jobQuery{workflow: q.Get("workflow_id")}
	if text := q.Get("status"); text != "" {
		out.statuses = []string{}
		var bad []string
		for s := range strings.SplitSeq(text, ",") {
			s = strings.ToLower(strings.TrimSpace(s))
			switch {
			case s == "":
			case slices.Contains(l.statuses(), s):
				out.statuses = append(out.statuses, s)
			default:
				bad = append(bad, s)
			}
		}
		if len(bad) > 0 {
			return out, "Invalid status value(s): " + strings.Join(bad, ", ") + ". Valid values: " + strings.Join(l.statuses(), ", ")
		}
	}
	sortBy, order := "created_at", "desc"
	if q.Has("sort_by") {
		sortBy = strings.ToLower(q.Get("sort_by"))
	}
	if q.Has("sort_order") {
		order = strings.ToLower(q.Get("sort_order"))
	}
	if sortBy != "created_at" && sortBy != "execution_duration" {
		return out, "sort_by must be 'created_at' or 'execution_duration'"
	}
	if order != "asc" && order != "desc" {
		return out, "sort_order must be 'asc' or 'desc'"
	}
	out.byDuration, out.ascending = sortBy == "execution_duration", order == "asc"
	limit, ok := intParam(q.Get("limit"), q.Has("limit"), 0)
	if !ok {
		return out, "limit must be an integer"
	}
	if q.Has("limit") && limit <= 0 {
		return out, "limit must be a positive integer"
	}
	offset, ok := intParam(q.Get("offset"), q.Has("offset"), 0)
	if !ok {
		return out, "offset must be an integer"
	}
	out.limit, out.offset = limit, max(0, offset)
	return out, ""
}

func (l *jobRoutes) getJobs(w http.ResponseWriter, r *http.Request) {
	q, fault := l.parseJobQuery(query(r))
	if fault != "" {
		answerJSON(w, http.StatusBadRequest, dict("error", fault))
		return
	}
	jobs, exc := l.allJobs(q.statuses)
	if exc != nil {
		answerInternalError(w, r)
		return
	}
	if q.workflow != "" {
		jobs = slices.DeleteFunc(jobs, func(j job) bool { return j.workflow == nil || !pyjson.Equal(j.workflow, pyjson.String(q.workflow)) })
	}
	slices.SortStableFunc(jobs, func(a, b job) int {
		c := cmp.Compare(a.created, b.created)
		if q.byDuration {
			c = cmp.Compare(a.duration, b.duration)
		}
		if !q.ascending {
			c = -c
		}
		return c
	})
	total := len(jobs)
	jobs = jobs[min(q.offset, total):]
	var limit any
	if q.limit > 0 {
		limit = q.limit
		jobs = jobs[:min(q.limit, len(jobs))]
	}
	shown := pyjson.Array{}
	for _, j := range jobs {
		shown = append(shown, j.object)
	}
	answerJSON(w, http.StatusOK, dict("jobs", shown,
		"pagination", dict("offset", q.offset, "limit", limit, "total", total, "has_more", q.offset+len(jobs) < total)))
}

// allJobs returns the jobs with one of the statuses. As with the real server, one
// odd prompt breaks the list for everybody.
func (l *jobRoutes) allJobs(statuses []string) ([]job, *exception) {
	want := func(s string) bool { return statuses == nil || slices.Contains(statuses, s) }
	var jobs []job
	running, pending := l.queue.snapshot()
	add := func(items []*item, status string) *exception {
		if !want(status) {
			return nil
		}
		for _, it := range items {
			j, exc := l.openJob(it, status)
			if exc != nil {
				return exc
			}
			jobs = append(jobs, j)
		}
		return nil
	}
	if exc := add(running, "in_progress"); exc != nil {
		return nil, exc
	}
	if exc := add(pending, "pending"); exc != nil {
		return nil, exc
	}
	if !want("completed") && !want("failed") && !want("cancelled") {
		return jobs, nil
	}
	for id, v := range l.queue.page(noLimit, -1).All() {
		j, exc := l.closedJob(id, v.(*pyjson.Object))
		if exc != nil {
			return nil, exc
		}
		if want(j.status) {
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

// workflowID returns extra_data.extra_pnginfo.workflow.id. Values of another kind
// on the way are exceptions in Python. Missing ones are not.
func workflowID(extra *pyjson.Object) (pyjson.Value, *exception) {
	var at pyjson.Value = extra
	for _, key := range []string{"extra_pnginfo", "workflow", "id"} {
		o, ok := at.(*pyjson.Object)
		if !ok {
			return nil, raise("AttributeError", "'%s' object has no attribute 'get'", python.TypeName(at))
		}
		next, ok := o.Get(key)
		if !ok {
			return nil, nil
		}
		at = next
	}
	if at == (pyjson.Null{}) {
		return nil, nil
	}
	return at, nil
}

func (l *jobRoutes) openJob(it *item, status string) (job, *exception) {
	workflow, exc := workflowID(it.extra)
	if exc != nil {
		return job{}, exc
	}
	o := dict("id", it.id, "status", status, "priority", it.number)
	j := job{object: o, id: it.id, status: status, workflow: workflow, created: setCreated(o, it.extra)}
	o.Set("outputs_count", pyjson.Int(0))
	if l.feat.previewableCount {
		o.Set("previewable_outputs_count", pyjson.Int(0))
	}
	if workflow != nil {
		o.Set("workflow_id", workflow)
	}
	return j, nil
}

func setCreated(o, extra *pyjson.Object) float64 {
	v, ok := extra.Get("create_time")
	if !ok {
		return 0
	}
	o.Set("create_time", v)
	n, _ := python.Number(v)
	return n.Float64()
}

func (l *jobRoutes) closedJob(id string, entry *pyjson.Object) (job, *exception) {
	tuple := entry.Array("prompt")
	extra, _ := tuple[3].(*pyjson.Object)
	workflow, exc := workflowID(extra)
	if exc != nil {
		return job{}, exc
	}
	j := job{id: id, workflow: workflow, entry: entry, status: "completed"}
	var failure pyjson.Value
	var start, end pyjson.Value
	for _, m := range entry.Object("status").Array("messages") {
		pair := m.(pyjson.Array)
		data := pair[1].(*pyjson.Object)
		at, _ := data.Get("timestamp")
		switch pair[0] {
		case pyjson.String("execution_start"):
			start = at
		case pyjson.String("execution_success"):
			end = at
		case pyjson.String("execution_error"):
			end, failure, j.status = at, data, "failed"
		case pyjson.String("execution_interrupted"):
			end, j.status = at, "failed"
			if l.feat.cancelledStatus {
				j.status = "cancelled"
			}
		}
	}
	o := dict("id", id, "status", j.status, "priority", tuple[0])
	j.object = o
	j.created = setCreated(o, extra)
	setGiven := func(key string, v pyjson.Value) {
		if v != nil {
			o.Set(key, v)
		}
	}
	setGiven("execution_start_time", start)
	setGiven("execution_end_time", end)
	if a, ok := python.Number(start); ok {
		b, _ := python.Number(end)
		j.duration = b.Float64() - a.Float64()
	}
	setGiven("execution_error", failure)
	count, preview := outputsOf(entry.Object("outputs"))
	o.Set("outputs_count", pyjson.Int(int64(count)))
	if l.feat.previewableCount {
		o.Set("previewable_outputs_count", pyjson.Int(int64(count)))
	}
	if preview != nil {
		o.Set("preview_output", preview)
	}
	setGiven("workflow_id", workflow)
	return j, nil
}

// previewTextLimit is the length of a text preview in characters.
const previewTextLimit = 1024

// outputsOf counts the files of a job and picks the one to show: one of type
// output if possible, else any file, else a text.
func outputsOf(outputs *pyjson.Object) (count int, preview *pyjson.Object) {
	var other, text *pyjson.Object
	for node, v := range outputs.All() {
		ui, _ := v.(*pyjson.Object)
		for media, v := range ui.All() {
			items, _ := v.(pyjson.Array)
			for _, it := range items {
				switch it := it.(type) {
				case *pyjson.Object:
					count++
					shown := pyjson.Clone(it).(*pyjson.Object)
					shown.Set("nodeId", pyjson.String(node))
					shown.Set("mediaType", pyjson.String(media))
					if it.String("type") == "output" && preview == nil {
						preview = shown
					} else if other == nil {
						other = shown
					}
				case pyjson.String:
					if media == "text" && text == nil {
						text = textPreview(node, string(it))
					}
				}
			}
		}
	}
	if preview == nil {
		preview = other
	}
	if preview == nil {
		preview = text
	}
	return count, preview
}

func textPreview(node, text string) *pyjson.Object {
	letters := []rune(text)
	o := dict("content", text)
	if len(letters) > previewTextLimit {
		o = dict("content", string(letters[:previewTextLimit]), "truncated", true)
	}
	o.Set("nodeId", pyjson.String(node))
	o.Set("mediaType", pyjson.String("text"))
	return o
}

func (l *jobRoutes) getJob(w http.ResponseWriter, r *http.Request) {
	j, exc := l.findJob(r.PathValue("id"))
	switch {
	case exc != nil:
		answerInternalError(w, r)
		return
	case j.object == nil:
		answerJSON(w, http.StatusNotFound, dict("error", "Job not found"))
		return
	}
	if j.entry != nil {
		outputs, _ := j.entry.Get("outputs")
		status, _ := j.entry.Get("status")
		tuple := j.entry.Array("prompt")
		j.object.Set("outputs", outputs)
		j.object.Set("execution_status", status)
		j.object.Set("workflow", dict("prompt", tuple[2], "extra_data", tuple[3]))
	}
	answerJSON(w, http.StatusOK, j.object)
}

func (l *jobRoutes) findJob(id string) (job, *exception) {
	running, pending := l.queue.snapshot()
	for _, it := range running {
		if it.id == id {
			return l.openJob(it, "in_progress")
		}
	}
	for _, it := range pending {
		if it.id == id {
			return l.openJob(it, "pending")
		}
	}
	if entry, ok := l.queue.entry(id); ok {
		return l.closedJob(id, entry)
	}
	return job{}, nil
}
