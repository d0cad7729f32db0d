package comfy

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/intake"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/submit"
)

// prompts answers the routes that take prompts in.
type prompts struct{ shared }

// getPrompt answers GET /prompt: how many of the caller's jobs are not done.
func (p prompts) getPrompt(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	own := p.Recent.Owner(a)
	if a.Anonymous() {
		own.Callers = []string{a.Caller()} // a number may reveal everybody's
	}
	total, err := p.hub().Jobs.Count(r.Context(), a.Tenant, own)
	if err != nil {
		p.Fail(w, r, err)
		return
	}
	api.WriteJSON(w, http.StatusOK, []byte(`{"exec_info": {"queue_remaining": `+strconv.Itoa(total)+`}}`))
}

// maxPromptValues bounds the JSON values of a POST /prompt. The largest
// workflows known have some ten thousand; each takes about 100 bytes here, and
// more in the Python of an instance.
const maxPromptValues = 1_000_000

// postPrompt answers POST /prompt. When it answers 200 the job is safe.
func (p prompts) postPrompt(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	v, body, ok := p.ReadLargeJSON(w, r, a, intake.Class{Limit: p.hub().Settings.MaxBody, Values: maxPromptValues})
	if !ok {
		return
	}
	defer body.Close()
	refuse := func(err error) {
		p.refuse(w, r, a, v, err)
		body.Refuse()
	}
	request, err := catalog.ReadRequest(v)
	if err != nil {
		refuse(err)
		return
	}
	a.SetClient(request.ClientID)
	s := submissionOf(r, a, request)
	if s.Callback, err = submit.ReadCallback(request.ExtraData.Object("comfyhub")); err != nil {
		refuse(err)
		return
	}
	p.hub().Submitter.Submit(r.Context(), s, func(accepted submit.Accepted, err error) {
		if err != nil {
			refuse(err)
		} else {
			p.accept(w, a, request, accepted)
		}
		_ = http.NewResponseController(w).Flush() // messages follow on another connection
	})
}

// submissionOf is a prompt as the hub takes it.
func submissionOf(r *http.Request, a api.Requester, request *catalog.Request) submit.Submission {
	s := submit.Submission{
		Requester: job.Requester{Tenant: a.Tenant, Caller: a.Caller(), Client: request.ClientID}, Place: a.Origin(), ID: request.PromptID,
		Graph: request.Graph, Targets: request.Targets, Extra: submit.WithoutCallback(request.Extra, request.ExtraData.Object("comfyhub")), Secrets: request.Secrets,
		Other: request.Other, Priority: priorityOf(r, request), Band: bandOf(r, request), Front: request.Front,
	}
	if source := r.Header.Get("Comfy-Usage-Source"); len(source) <= api.MaxName {
		s.Source = source
	}
	if request.Number != "" {
		n := request.Number.Float64()
		s.Number = &n
	}
	return s
}

// accept answers a prompt that was taken.
func (p prompts) accept(w http.ResponseWriter, a api.Requester, request *catalog.Request, accepted submit.Accepted) {
	p.Recent.Note(a, request.ClientID)
	if accepted.Position >= 0 {
		w.Header().Set("X-ComfyHub-Position", strconv.Itoa(accepted.Position))
	}
	if accepted.ETA >= 0 {
		w.Header().Set("X-ComfyHub-Eta", strconv.FormatFloat(accepted.ETA.Round(10*time.Millisecond).Seconds(), 'f', -1, 64))
	}
	api.WriteValue(w, pyjson.NewObject(
		pyjson.Member{Key: "prompt_id", Value: pyjson.String(accepted.ID)},
		pyjson.Member{Key: "number", Value: accepted.Number},
		pyjson.Member{Key: "node_errors", Value: accepted.NodeErrors},
	))
}

// refuse answers a prompt that was not taken.
func (p prompts) refuse(w http.ResponseWriter, r *http.Request, a api.Requester, body pyjson.Value, err error) {
	answer, ok := errors.AsType[*catalog.Answer](err)
	if !ok {
		p.Fail(w, r, err)
		return
	}
	// ComfyUI's counter moves on for these too.
	if !answer.Numbered && takesNumber(body) {
		p.hub().Submitter.TakeNumber(r.Context(), a.Tenant)
	}
	writeAnswer(w, r, answer)
}

// writeAnswer answers as ComfyUI does to the same body.
func writeAnswer(w http.ResponseWriter, r *http.Request, answer *catalog.Answer) {
	if answer.Status == http.StatusInternalServerError {
		api.WriteInternalError(w, r)
		return
	}
	w.Header().Set("Content-Type", answer.ContentType)
	text := short(answer.Body)
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(answer.Status)
	_, _ = w.Write(text)
}

// takesNumber reports whether ComfyUI's counter moves on for a body of POST
// /prompt that is refused: it is taken before anything is checked, unless the
// body has a number of its own, or is none that Python can look into.
func takesNumber(body pyjson.Value) bool {
	switch v := body.(type) {
	case *pyjson.Object:
		return !v.Has("number")
	case pyjson.Array:
		return !slices.Contains(v, pyjson.Value(pyjson.String("number")))
	case pyjson.String:
		return !strings.Contains(string(v), "number")
	}
	return false
}

// priorityOf reads the wish for a priority: the header, else
// extra_data.comfyhub.priority; anything odd counts as none.
func priorityOf(r *http.Request, request *catalog.Request) int {
	p, _ := request.ExtraData.Object("comfyhub").Get("priority")
	n, _ := p.(pyjson.Number)
	return api.PriorityOf(r, string(n))
}

// bandOf reads the wish for a band: the header, else extra_data.comfyhub.band; anything
// odd counts as none.
func bandOf(r *http.Request, request *catalog.Request) job.Band {
	b, _ := request.ExtraData.Object("comfyhub").Get("band")
	name, _ := b.(pyjson.String)
	return api.BandOf(r, string(name))
}

// maxAnswer bounds an answer that repeats what was wrong with a prompt.
const maxAnswer = 1 << 20

// short is an answer to a prompt, or a shorter one that says less: what was
// sent must not come back by the megabyte.
func short(body []byte) []byte {
	if len(body) <= maxAnswer {
		return body
	}
	return api.PromptError("prompt_outputs_failed_validation", "Prompt outputs failed validation",
		"There is more wrong with the prompt than fits into an answer.")
}
