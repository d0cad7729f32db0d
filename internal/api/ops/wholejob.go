package ops

import (
	"context"
	"errors"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/refusal"
	"github.com/comfyhub/comfyhub/internal/submit"
	"github.com/comfyhub/comfyhub/internal/view"
)

// prompt is what a job was asked, and what became of it, all raw JSON; nil for what is not known.
type prompt struct {
	graph, extra, outputs, status []byte
	wanted                        []string
	// subject is what its result depends on, of a live job.
	subject []byte
}

// promptOf reads the prompt of a job, with the memory to parse it, which release gives back.
func (o finder) promptOf(ctx context.Context, a api.Requester, j job.Job) (p prompt, release func(), err error) {
	body, entry, err := o.hub().Finder.Prompt(ctx, j)
	if err != nil {
		return prompt{}, nil, err
	}
	size := int64(len(body.Prompt) + len(body.Extra))
	if entry.Key != "" {
		size += entry.Size()
	}
	if release, err = o.Intake.Reserve(ctx, a.Share(), 3*size); err != nil {
		return prompt{}, nil, err
	}
	if len(body.Prompt) > 0 {
		return prompt{graph: body.Prompt, extra: body.Extra, wanted: body.Outputs, subject: body.Subject}, release, nil
	}
	raw, err := entry.JSON()
	if errors.Is(err, view.ErrNoJob) {
		return prompt{}, release, nil
	}
	if err != nil {
		release()
		return prompt{}, nil, err
	}
	e, _ := comfyui.ParseEntry(raw)
	return prompt{graph: e.Graph, extra: e.Extra, outputs: e.Outputs, status: e.StatusRaw, wanted: e.Wanted}, release, nil
}

// promptFor reads a job that is asked for, and its prompt as promptOf does. If it cannot, it answers,
// and release is nil.
func (o finder) promptFor(w http.ResponseWriter, r *http.Request, a api.Requester, id string) (j view.JobView, p prompt, release func()) {
	j, err := o.hub().Insight.Job(r.Context(), of(r, a), id)
	if err != nil {
		o.failJob(w, r, err)
		return j, p, nil
	}
	p, release, err = o.promptOf(r.Context(), a, j.Job)
	if err != nil {
		o.Fail(w, r, err)
		return j, p, nil
	}
	return j, p, release
}

// getWholeJob answers GET /hub/jobs/{id}/whole: a job with its attempts, its messages, its error and
// its graph.
func (o finder) getWholeJob(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	j, p, release := o.promptFor(w, r, a, path[0])
	if release == nil {
		return
	}
	defer release()
	head := jobValue(j)
	head.Set("key", pyjson.String(j.Key))
	head.Set("upstream_id", pyjson.String(j.Run.Upstream))
	head.Set("lost_at", times(j.LostAt))
	head.Set("failed_at", pyjson.Strings(j.FailedAt))
	head.Set("killed", pyjson.Int(int64(j.Kills)))
	head.Set("excused", pyjson.Int(int64(j.Excuses)))
	head.Set("time", o.hints(r.Context(), of(r, a), j, p))
	body := pyjson.Marshal(head)
	body = body[:len(body)-1]
	for _, part := range []struct {
		name string
		raw  []byte
	}{{"graph", p.graph}, {"extra_data", p.extra}, {"outputs", p.outputs}, {"status_of_run", p.status}} {
		if len(part.raw) == 0 {
			part.raw = []byte("null")
		}
		body = append(append(body, `, "`+part.name+`": `...), part.raw...)
	}
	api.WriteJSON(w, http.StatusOK, pyjson.Strict(append(body, '}')))
}

// times are moments as [seconds] says them.
func times(ms []int64) pyjson.Array {
	list := make(pyjson.Array, 0, len(ms))
	for _, at := range ms {
		list = append(list, seconds(at))
	}
	return list
}

// errNothingToRun is the error of again for a job of which no prompt is left.
var errNothingToRun = errors.New("nothing is left of its prompt")

// again posts the prompt of a job once more, as its tenant, and returns the id of the new job.
func (o finder) again(ctx context.Context, a api.Requester, j view.JobView) (id string, err error) {
	p, release, err := o.promptOf(ctx, a, j.Job)
	if err != nil {
		return "", err
	}
	defer release()
	if len(p.graph) == 0 {
		return "", errNothingToRun
	}
	s, err := submissionOf(j.Job, p)
	if err != nil {
		return "", err
	}
	o.hub().Submitter.Submit(ctx, s, func(accepted submit.Accepted, e error) { id, err = accepted.ID, e })
	return id, err
}

// submissionOf is the prompt of a job once more. No socket is told of the new job, whose client does
// not know its id.
func submissionOf(j job.Job, p prompt) (submit.Submission, error) {
	if len(p.extra) == 0 {
		p.extra = []byte("{}")
	}
	v, err := pyjson.Parse(append(append(append(append([]byte(`{"prompt": `), p.graph...), `, "extra_data": `...), p.extra...), '}'))
	if err != nil {
		return submit.Submission{}, err
	}
	request, err := catalog.ReadRequest(v)
	if err != nil {
		return submit.Submission{}, err
	}
	s := submit.Submission{
		Requester: job.Requester{Tenant: j.Tenant, Caller: j.Caller}, Place: j.Place, Priority: j.Priority, Band: j.Band(),
		Graph: request.Graph, Extra: submit.WithoutCallback(request.Extra, request.ExtraData.Object("comfyhub")),
	}
	if len(p.wanted) > 0 {
		s.Targets = pyjson.Marshal(pyjson.Strings(p.wanted))
	}
	return s, nil
}

// postJobAgain answers POST /hub/jobs/{id}/again: the same prompt once more.
func (o finder) postJobAgain(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	if o.ofOthers(w, r, a) {
		return
	}
	j, err := o.hub().Insight.Job(r.Context(), of(r, a), path[0])
	if err != nil {
		o.failJob(w, r, err)
		return
	}
	id, err := o.again(r.Context(), a, j)
	var answer *catalog.Answer
	switch {
	case errors.As(err, &answer), errors.Is(err, errNothingToRun):
		api.WriteErrorText(w, http.StatusConflict, "It cannot run again: "+reasonOf(err))
	case err != nil:
		o.Fail(w, r, err)
	default:
		api.WriteValue(w, pyjson.NewObject(pyjson.Member{Key: "id", Value: pyjson.String(id)}))
	}
}

// reasonOf says in a line why a job could not be acted on.
func reasonOf(err error) string {
	var answer *catalog.Answer
	var refused *refusal.Refusal
	switch {
	case errors.As(err, &answer):
		v, _ := pyjson.Parse(answer.Body)
		o, _ := v.(*pyjson.Object)
		if message := o.Object("error").String("message"); message != "" {
			return message
		}
		return "no instance would take its prompt any more"
	case errors.As(err, &refused):
		return refused.Message
	}
	return err.Error()
}
