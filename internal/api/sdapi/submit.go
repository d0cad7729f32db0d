package sdapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/comfyhub/comfyhub/internal/a1111"
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/intake"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/refusal"
	"github.com/comfyhub/comfyhub/internal/retry"
	"github.com/comfyhub/comfyhub/internal/submit"
)

// maxValues bounds the JSON values of a request, as in POST /prompt.
const maxValues = 1_000_000

// jobMakers answers the routes that make a job.
type jobMakers struct{ *room }

// postRequest answers the route that does a class, once its job has ended.
func (o jobMakers) postRequest(class string) api.Handler {
	return func(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
		if o.hub().Classes.Known(class) == nil {
			writeNoServer(w)
			return
		}
		ctx, release, ok := o.Hold(w, r, a)
		if !ok {
			return
		}
		defer release()
		asked, ok := o.submit(w, r, a, class)
		if !ok {
			return
		}
		out := &answerWriter{w: w, control: http.NewResponseController(w)}
		defer out.close()
		o.follow(ctx, r, a, asked, out)
	}
}

// submit takes a request in. It is gone from memory when submit returns, because the answer
// may take long. Any error is answered.
func (o jobMakers) submit(w http.ResponseWriter, r *http.Request, a api.Requester, class string) (request, bool) {
	v, body, ok := o.readJSON(w, r, a, intake.Class{Limit: o.hub().Settings.MaxBody, Values: maxValues})
	if !ok {
		return request{}, false
	}
	defer body.Close()
	options, err := o.options(r.Context(), a)
	if err != nil {
		o.failOptions(w, r, err)
		return request{}, false
	}
	asked, graph, err := readRequest(class, v, options)
	if err != nil {
		body.Refuse()
		refuseRequest(w, err)
		return request{}, false
	}
	accepted := false
	o.hub().Submitter.Submit(r.Context(), submit.Submission{
		Requester: a.Requester(), Place: a.Origin(), ID: asked.id, Graph: graph, Extra: []byte("{}"), Priority: api.PriorityOf(r, ""), Band: api.BandOf(r, ""),
	}, func(_ submit.Accepted, err error) {
		if accepted = err == nil; !accepted {
			o.refuse(w, r, err)
			body.Refuse()
		}
	})
	return asked, accepted
}

// readJSON reads a body, which must be closed, and be told before that if it is refused.
func (o *room) readJSON(w http.ResponseWriter, r *http.Request, a api.Requester, c intake.Class) (pyjson.Value, *intake.Body, bool) {
	return o.ReadOwnJSON(w, r, a, c, func(is string, place int) {
		(&invalid{place: []any{place}, message: "the body is " + is, kind: "value_error.jsondecode"}).write(w)
	})
}

// refuseRequest answers a request that cannot be read.
func refuseRequest(w http.ResponseWriter, err error) {
	var odd *invalid
	switch {
	case errors.As(err, &odd):
		odd.write(w)
	case errors.Is(err, a1111.ErrRequest):
		writeProblem(w, http.StatusUnprocessableEntity, exception("HTTPException", err.Error()))
	default:
		writeDetail(w, http.StatusUnprocessableEntity, err.Error())
	}
}

// refuse answers a request that was not taken.
func (o jobMakers) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if answer, ok := errors.AsType[*catalog.Answer](err); ok {
		writeUnfit(w, answer.Body)
		return
	}
	o.Fail(w, r, refusal.OfRequests(err))
}

// writeUnfit answers a request whose graph ComfyUI would refuse: most likely one of its
// pictures is none.
func writeUnfit(w http.ResponseWriter, answer []byte) {
	v, _ := pyjson.Parse(answer)
	o, _ := v.(*pyjson.Object)
	text, _ := api.ErrorText(http.StatusUnprocessableEntity, o, nil)
	for _, node := range o.Object("node_errors").All() {
		about, _ := node.(*pyjson.Object)
		for _, v := range about.Array("errors") {
			one, _ := v.(*pyjson.Object)
			text = api.Sentence(one.String("message"), one.String("details"))
		}
	}
	writeProblem(w, http.StatusUnprocessableEntity, exception("HTTPException", text))
}

const (
	// leaveTimeout bounds the cancelling of a job whose client is gone.
	leaveTimeout = 30 * time.Second
	// Redis is asked again after pauses between these.
	firstPause, mostPause = 100 * time.Millisecond, 2 * time.Second
)

// leave cancels a job: nobody waits for its answer any more.
func (o jobMakers) leave(a api.Requester, id string) {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	for pauses := retry.New(firstPause, mostPause); ctx.Err() == nil; pauses.Wait(ctx) {
		_, err := o.hub().Canceller.Cancel(ctx, a.Tenant, id)
		if err == nil {
			return
		}
		o.Log().Debug("cannot cancel the job of a client that is gone", "error", err)
	}
}
