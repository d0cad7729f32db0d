package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/intake"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// getPrompt answers GET /prompt: how many of the caller's jobs are not done.
func (h *Hub) getPrompt(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	total := 0
	callers := h.recent.Callers(a)
	if a.Anonymous() {
		callers = []string{a.Caller()} // a number may tell of everybody's
	}
	for _, caller := range callers {
		n, err := h.queue.Count(r.Context(), caller)
		if err != nil {
			h.requests.Fail(w, r, err)
			return
		}
		total += n
	}
	api.WriteJSON(w, http.StatusOK, []byte(`{"exec_info": {"queue_remaining": `+strconv.Itoa(total)+`}}`))
}

// postPrompt answers POST /prompt: it checks the prompt as ComfyUI would and
// puts it into the queue. When it answers 200 the job is safe.
func (h *Hub) postPrompt(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	v, body, ok := h.requests.ReadLargeJSON(w, r, a, h.promptBody())
	if !ok {
		return
	}
	defer body.Close()
	if !h.takePrompt(w, r, a, v) {
		body.Refuse()
	}
}

// takePrompt is postPrompt for a body that was read. It reports whether the
// prompt was accepted.
func (h *Hub) takePrompt(w http.ResponseWriter, r *http.Request, a api.Requester, body pyjson.Value) bool {
	request, err := catalog.ReadRequest(body)
	if err != nil {
		h.refuse(w, r, a, body, err)
		return false
	}
	a.SetClient(request.ClientID)
	have := &lookup{hub: h, ctx: r.Context(), tenant: a.Tenant}
	// The catalog is one and the same for all steps: a merge may come in between.
	c, verdict := h.classes.validate(r.Context(), catalog.Prompt{
		Graph: request.Graph, Targets: request.Targets, Version: h.dispatch.Version(), Known: have.has,
		OwnFiles: a.Tenant != job.DefaultTenant,
		Makes:    func(q catalog.Question) bool { return h.dispatch.Makes(r.Context(), h.stock.infos(), q) },
	})
	if have.err != nil {
		h.requests.Fail(w, r, have.err) // a file may be there that could not be asked for
		return false
	}
	if !verdict.Accepted() {
		h.refuse(w, r, a, body, verdict.Answer)
		return false
	}
	submission, err := h.submission(r, a, c, request, verdict, have)
	if err != nil {
		h.requests.Fail(w, r, err)
		return false
	}
	return h.accept(w, r, a, submission, verdict)
}

// refuse answers a prompt that cannot be taken. ComfyUI's counter moves on for
// these too, unless the prompt brought its own number.
func (h *Hub) refuse(w http.ResponseWriter, r *http.Request, a api.Requester, body pyjson.Value, err error) {
	var answer *catalog.Answer
	if !errors.As(err, &answer) {
		h.requests.Fail(w, r, err)
		return
	}
	if takesNumber(body) {
		if _, err := h.queue.TakeNumber(r.Context(), a.Tenant); err != nil {
			h.log().Debug("cannot advance the number", "error", err)
		}
	}
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

// submission makes a job of a prompt that has passed the checks.
func (h *Hub) submission(r *http.Request, a api.Requester, c *catalog.Catalog, request *catalog.Request, verdict *catalog.Verdict, have *lookup) (queue.Submission, error) {
	needs := c.Requirements(verdict.Graph, verdict.Outputs, have.has)
	pins, err := h.pin(r.Context(), a.Tenant, verdict.Graph, c.InputFiles(verdict.Graph, verdict.Outputs, have.has))
	if err != nil {
		return queue.Submission{}, err
	}
	s := queue.Submission{
		Key: uuid.NewString(), ID: request.PromptID, Tenant: a.Tenant, Caller: a.Caller(), Client: request.ClientID,
		Class: needs.Signature(), Priority: priorityOf(r, request), Front: request.Front,
		Body: job.Body{
			Prompt: verdict.Graph.Bytes(), Extra: withClient(request.Extra, request.ClientID),
			Outputs: verdict.Outputs, Targets: request.Targets, Secrets: request.Secrets,
			Inputs: pins, Requires: needs.Encode(),
		},
	}
	if s.ID == "" {
		s.ID = s.Key
	}
	if request.Number != "" {
		n := request.Number.Float64()
		s.Number = &n
	}
	s.BodyHash = hashOf(s.Body.Prompt, s.Body.Extra, s.Body.Targets)
	s.Body.Extra = h.stamped(s.Body.Extra, r) // differs each time, so it is no part of the hash
	return s, nil
}

// accept puts the job into the queue and answers. It reports whether the job
// was accepted.
func (h *Hub) accept(w http.ResponseWriter, r *http.Request, a api.Requester, s queue.Submission, verdict *catalog.Verdict) bool {
	// First the answer, then the messages: several clients lose a prompt whose
	// messages arrive before they have read its id.
	door := h.dispatch.Door(s.Key)
	defer door.Close()
	if verdict.Doubtful && h.mayAsk(s) {
		s.Door = doorLife
	}
	// Before it is queued: the run may begin before Enqueue has returned, and a
	// client without a socket yet must be sent all of it.
	k := stream.Key{Tenant: s.Tenant, Client: s.Client}
	h.streams.Posted(k, time.Now())
	h.streams.GoesOn(k, s.ID)
	accepted, err := h.queue.Enqueue(r.Context(), s)
	if err != nil {
		h.refuseJob(w, r, err)
		return false
	}
	j, nodeErrors := accepted.Job, verdict.NodeErrors
	if j.DoorUntil > 0 {
		waits := door
		if accepted.Existing {
			waits = nil // an earlier request waits there
		}
		answer, refused, err := h.ask(r.Context(), j, waits)
		switch {
		case err != nil:
			h.requests.Fail(w, r, err)
			return false
		case refused:
			api.WriteJSON(w, http.StatusBadRequest, short(answer))
			return false
		case answer != nil:
			nodeErrors = nodeErrorsOf(answer, nodeErrors)
		}
	}
	if accepted.Existing && j.State.Ended() {
		h.replay(r.Context(), j)
	} else {
		h.streams.StatusChanged(j.Caller)
	}
	h.recent.Note(a, s.Client)
	if position, err := h.queue.Position(r.Context(), j.Key); err == nil {
		w.Header().Set("X-ComfyHub-Position", strconv.Itoa(position))
	}
	api.WriteValue(w, pyjson.NewObject(
		pyjson.Member{Key: "prompt_id", Value: pyjson.String(j.ID)},
		pyjson.Member{Key: "number", Value: pyjson.Number(j.Number)},
		pyjson.Member{Key: "node_errors", Value: nodeErrors},
	))
	_ = http.NewResponseController(w).Flush()
	door.Close()
	h.dispatch.Wake()
	return true
}

// refuseJob answers a prompt that the queue did not take.
func (h *Hub) refuseJob(w http.ResponseWriter, r *http.Request, err error) {
	own := api.Error{
		Status: http.StatusTooManyRequests, Kind: "tenant_queue_full", Message: "Too many of your prompts are waiting",
		Details: "Try again when some of your own prompts have been executed.", RetryAfter: 10,
	}
	switch {
	case errors.Is(err, queue.ErrTenantFullBytes):
		h.requests.RefuseFull(w, "queue_size", own)
	case errors.Is(err, queue.ErrTenantFull):
		h.requests.RefuseFull(w, "waiting", own)
	case errors.Is(err, queue.ErrFull):
		api.WriteError(w, api.Error{
			Status: http.StatusTooManyRequests, Kind: "queue_full", Message: "The hub's queue is full",
			Details: "Try again when some prompts have been executed.", RetryAfter: 10,
		})
	default:
		h.requests.Fail(w, r, err)
	}
}

// replay sends the messages of an ended job again, because the same prompt was
// posted again: its client may have missed the answer, or the end.
func (h *Hub) replay(ctx context.Context, j job.Job) {
	if h.streams.Replay(stream.Key{Tenant: j.Tenant, Client: j.Client}, j.ID) {
		return
	}
	h.tellEnd(ctx, j)
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

// hashStep is hashed at once. Hashing cannot be interrupted, and all of the hub
// waits for it when a garbage collection begins.
const hashStep = 256 << 10

// hashOf identifies what was asked.
func hashOf(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(strconv.Itoa(len(p)) + ":"))
		for step := range slices.Chunk(p, hashStep) {
			h.Write(step)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// priorityOf reads the wish for a priority: the header, else
// extra_data.comfyhub.priority; anything odd counts as none.
func priorityOf(r *http.Request, request *catalog.Request) int {
	wish := r.Header.Get("X-ComfyHub-Priority")
	if wish == "" {
		p, _ := request.ExtraData.Object("comfyhub").Get("priority")
		n, _ := p.(pyjson.Number)
		wish = string(n)
	}
	n, err := strconv.Atoi(wish)
	if err != nil {
		return 0
	}
	return min(max(n, job.MinPriority), job.MaxPriority)
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

// maxPromptValues bounds the JSON values of a POST /prompt. The largest
// workflows known have some ten thousand; each takes about 100 bytes here, and
// more in the Python of an instance.
const maxPromptValues = 1_000_000

// promptBody is the class of POST /prompt.
func (h *Hub) promptBody() intake.Class {
	return intake.Class{Limit: h.Settings().MaxBody, Values: maxPromptValues}
}
