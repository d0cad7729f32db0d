package plain

import (
	"errors"
	"net/http"
	"time"

	"github.com/comfyhub/comfyhub/internal/a1111"
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/intake"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/refusal"
	"github.com/comfyhub/comfyhub/internal/submit"
	"github.com/comfyhub/comfyhub/internal/view"
)

// maxValues bounds the JSON values of a workflow, as in POST /prompt.
const maxValues = 1_000_000

// postSubmit answers POST /submit. When it answers 200 the job is safe.
func (o *room) postSubmit(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	v, body, ok := o.readJSON(w, r, a, intake.Class{Limit: o.hub().Settings.MaxBody, Values: maxValues})
	if !ok {
		return
	}
	defer body.Close()
	refuse := func(err error) {
		o.refuse(w, r, err)
		body.Refuse()
	}
	v, release, err := o.converted(r.Context(), a, v)
	if err != nil {
		o.refuseSaved(w, r, err)
		body.Refuse()
		return
	}
	defer release()
	if o.lacksA1111(v) {
		writeProblem(w, http.StatusUnprocessableEntity, "No A1111 instances are connected to the hub")
		body.Refuse()
		return
	}
	asked, err := readOrder(v)
	var answer *catalog.Answer
	switch {
	case errors.As(err, &answer):
		refuse(err)
		return
	case err != nil:
		writeProblem(w, http.StatusBadRequest, err.Error())
		body.Refuse()
		return
	}
	a.SetClient(asked.request.ClientID)
	s := submit.Submission{
		Requester: job.Requester{Tenant: a.Tenant, Caller: a.Caller(), Client: asked.request.ClientID}, Place: a.Origin(),
		Graph: asked.request.Graph, Extra: submit.WithoutCallback(asked.request.Extra, asked.request.ExtraData.Object("comfyhub")), Secrets: asked.request.Secrets,
		Priority: asked.priority, Band: asked.band, Callback: asked.callback,
	}
	if asked.key != "" {
		s.ID = idOf(a.Tenant, asked.key)
		known, err := o.hub().Insight.Job(r.Context(), a.Viewer(), s.ID)
		switch {
		case err == nil && !known.Withdrawn:
			api.WriteDetail(w, acceptedValue(known.ID, statusOf(known.State), known.CreatedAt, known.Position, known.ETA))
			return
		case err != nil && !errors.Is(err, view.ErrNoJob):
			o.Fail(w, r, err)
			return
		}
	}
	o.hub().Submitter.Submit(r.Context(), s, func(accepted submit.Accepted, err error) {
		if err != nil {
			refuse(err)
			return
		}
		o.Recent.Note(a, asked.request.ClientID)
		api.WriteDetail(w, acceptedValue(accepted.ID, statusQueued, accepted.CreatedAt, accepted.Position, accepted.ETA))
		_ = http.NewResponseController(w).Flush() // messages follow on another connection
	})
}

// lacksA1111 reports whether an order is for A1111 and the fleet has none.
func (o *room) lacksA1111(v pyjson.Value) bool {
	asked, _ := v.(*pyjson.Object)
	return asked.String("service") == serviceA1111 && o.hub().Classes.Known(a1111.ClassTxt2Img) == nil
}

// acceptedValue is the answer to a job that was taken.
func acceptedValue(id, status string, created int64, position int, eta time.Duration) *pyjson.Object {
	return pyjson.NewObject(
		pyjson.Member{Key: "id", Value: pyjson.String(id)},
		pyjson.Member{Key: "status", Value: pyjson.String(status)},
		pyjson.Member{Key: "created_at", Value: seconds(created)},
		pyjson.Member{Key: "position", Value: place(position)},
		pyjson.Member{Key: "eta", Value: inSeconds(eta)},
	)
}

// readJSON reads a body, which must be closed, and be told before that if it is refused.
func (o *room) readJSON(w http.ResponseWriter, r *http.Request, a api.Requester, c intake.Class) (pyjson.Value, *intake.Body, bool) {
	return o.ReadOwnJSON(w, r, a, c, func(is string, _ int) { writeProblem(w, http.StatusBadRequest, "the body is "+is) })
}

// refuse answers a job that was not taken.
func (o *room) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var answer *catalog.Answer
	var refused *refusal.Refusal
	switch {
	case errors.As(err, &answer):
		writeUnfit(w, answer.Body)
	case errors.As(err, &refused) && refused.Kind == refusal.KindCallback:
		writeProblem(w, refused.Status, refused.Details)
	default:
		o.Fail(w, r, refusal.OfJobs(err))
	}
}

// maxUnfit bounds an answer that repeats what is wrong with a workflow, in bytes.
const maxUnfit = 1 << 20

// writeUnfit answers a workflow that ComfyUI would refuse, with what is wrong with each node.
func writeUnfit(w http.ResponseWriter, answer []byte) {
	v, _ := pyjson.Parse(answer)
	if o, _ := v.(*pyjson.Object); o.Object("error") == nil || len(answer) > maxUnfit {
		writeProblem(w, http.StatusUnprocessableEntity, "the workflow is none that ComfyUI could run")
		return
	}
	writeProblemValue(w, http.StatusUnprocessableEntity, problemOf(http.StatusUnprocessableEntity, answer))
}
