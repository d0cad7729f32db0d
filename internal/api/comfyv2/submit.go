package comfyv2

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/intake"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/refusal"
	"github.com/comfyhub/comfyhub/internal/submit"
	"github.com/comfyhub/comfyhub/internal/view"
)

const (
	// maxValues bounds the JSON values of a workflow, as in POST /prompt.
	maxValues = 1_000_000
	// maxKey bounds an idempotency key, in bytes.
	maxKey = 255
	// keySpace keeps the ids of idempotency keys apart from all others.
	keySpace = "b0f7a5a4-6f0e-4c7b-9f2c-1f4d1b7a2c55"
)

// postJob answers POST /api/v2/jobs. When it answers 201 the job is safe.
func (o submits) postJob(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	v, body, ok := o.readJSON(w, r, a, intake.Class{Limit: o.hub().Settings.MaxBody, Values: maxValues})
	if !ok {
		return
	}
	defer body.Close()
	refuse := func(err error) {
		o.refuse(w, r, err)
		body.Refuse()
	}
	s, err := o.submission(r, a, v)
	if err != nil {
		refuse(err)
		return
	}
	o.hub().Submitter.Submit(r.Context(), s, func(accepted submit.Accepted, err error) {
		switch {
		case err != nil:
			refuse(err)
		case s.Once && accepted.Existing:
			refuse(errKeyUsed())
		default:
			j := job.Job{ID: accepted.ID, State: job.Queued, CreatedAt: accepted.CreatedAt, Label: s.Label}
			shown := o.jobValue(a, view.JobView{Job: j, Position: accepted.Position, ETA: accepted.ETA}, nil, outcome{})
			api.WriteJSON(w, http.StatusCreated, pyjson.Strict(pyjson.Marshal(shown)))
			_ = http.NewResponseController(w).Flush() // the client may look for the job on another connection
		}
	})
}

// submission is a request as the hub takes it.
func (o submits) submission(r *http.Request, a api.Requester, v pyjson.Value) (submit.Submission, error) {
	asked, kept, err := readRequest(v)
	if err != nil {
		return submit.Submission{}, err
	}
	if asked, err = o.resolve(r.Context(), a, asked); err != nil {
		return submit.Submission{}, err
	}
	request, err := readGraph(asked)
	if err != nil {
		return submit.Submission{}, err
	}
	s := submit.Submission{
		Requester: job.Requester{Tenant: a.Tenant, Caller: a.Caller()}, Place: a.Origin(), Label: kept.encode(),
		Graph: request.Graph, Extra: request.Extra, Secrets: request.Secrets, Priority: kept.clamped(), Band: api.BandOf(r, ""),
	}
	if kept.priority == nil {
		s.Priority = api.PriorityOf(r, "")
	}
	keys := r.Header.Values("Idempotency-Key")
	if len(keys) == 0 {
		return s, nil
	}
	if len(keys) > 1 || keys[0] == "" || len(keys[0]) > maxKey {
		return s, &problem{status: http.StatusBadRequest, code: codeRequest, message: "Idempotency-Key must have 1 to " + strconv.Itoa(maxKey) + " bytes."}
	}
	s.ID, s.Once = idOf(a.Tenant, keys[0]), true
	_, err = o.hub().Insight.Job(r.Context(), a.Viewer(), s.ID)
	if err == nil {
		return s, errKeyUsed()
	}
	if errors.Is(err, view.ErrNoJob) {
		err = nil
	}
	return s, err
}

// idOf is the id of the one job of a tenant's idempotency key.
func idOf(tenant, key string) string {
	return uuid.NewSHA1(uuid.MustParse(keySpace), []byte(strings.Join([]string{tenant, key}, "\x00"))).String()
}

func errKeyUsed() error {
	return &problem{
		status: http.StatusUnprocessableEntity, code: codeKeyUsed,
		message: "There is a job of this Idempotency-Key already. Look for it among your jobs, or send another key.",
	}
}

// readJSON reads a body, which must be closed, and be told before that if it is refused.
func (o *room) readJSON(w http.ResponseWriter, r *http.Request, a api.Requester, c intake.Class) (pyjson.Value, *intake.Body, bool) {
	return o.ReadOwnJSON(w, r, a, c, func(is string, _ int) { refuse(w, http.StatusBadRequest, codeRequest, "The body is "+is+".") })
}

// refuse answers a job that was not taken.
func (o *room) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var odd *problem
	var answer *catalog.Answer
	switch {
	case errors.As(err, &odd):
		odd.write(w)
	case errors.As(err, &answer):
		writeUnfit(w, answer.Body)
	default:
		o.Fail(w, r, refusal.OfJobs(err))
	}
}

// maxUnfit bounds an answer that repeats what is wrong with a workflow, in bytes.
const maxUnfit = 1 << 20

// writeUnfit answers a workflow that ComfyUI would refuse, with what is wrong with each node.
func writeUnfit(w http.ResponseWriter, answer []byte) {
	unfit := problem{status: http.StatusUnprocessableEntity, code: codeWorkflow, message: "The workflow is none that ComfyUI could run."}
	v, _ := pyjson.Parse(answer)
	if o, _ := v.(*pyjson.Object); o.Object("error") != nil && len(answer) <= maxUnfit {
		unfit.message, _ = api.ErrorText(unfit.status, o, nil)
		nodes := o.Object("node_errors")
		if nodes == nil {
			nodes = &pyjson.Object{}
		}
		unfit.details = object("node_errors", nodes)
	}
	unfit.write(w)
}
