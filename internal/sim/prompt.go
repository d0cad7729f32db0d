package sim

import (
	"net/http"
	"regexp"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

var canonicalUUID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

func (p *process) getPrompt(w http.ResponseWriter, r *http.Request) {
	answerJSON(w, http.StatusOK, dict("exec_info", dict("queue_remaining", p.queue.remaining())))
}

// postPrompt validates and queues a prompt.
func (p *process) postPrompt(w http.ResponseWriter, r *http.Request) {
	p.terminal.write("got prompt\n")
	body, ok := p.readJSON(w, r)
	if !ok {
		return
	}
	if p.srv.Fault().RefusePrompt {
		answerInternalError(w, r)
		return
	}
	req, isObject := body.(*pyjson.Object)
	if !isObject {
		p.oddBody(w, r, body)
		return
	}
	number, exc := p.numbers.of(req)
	if exc != nil {
		answerInternalError(w, r)
		return
	}
	graph, ok := req.Get("prompt")
	if !ok {
		answerNoPrompt(w)
		return
	}
	id, ok := p.feat.promptID(req)
	if !ok {
		answerRefusal(w, problem("invalid_prompt_id", "prompt_id must be a valid UUID",
			"prompt_id must be a UUID string in canonical lowercase hyphenated form; omit it to let the server generate one", dict()), dict())
		return
	}
	if p.feat.nodeReplacements {
		if exc := replaceNodes(p.cat, graph); exc != nil {
			answerInternalError(w, r)
			return
		}
	}
	var targets pyjson.Value
	if p.feat.partialExecution {
		targets, _ = req.Get("partial_execution_targets")
	}
	result, exc := validatePrompt(p.cat, p.files, graph, targets)
	if exc != nil {
		answerInternalError(w, r)
		return
	}
	extra, exc := p.extraData(req, r)
	if exc != nil {
		answerInternalError(w, r)
		return
	}
	if result.problem != nil {
		answerRefusal(w, result.problem, result.errors)
		return
	}
	it := &item{number: number, id: id, graph: graph.(*pyjson.Object), extra: extra, outputs: p.srv.arrange(result.outputs)}
	if !p.queue.put(it) || p.srv.Fault().PromptError {
		answerInternalError(w, r)
		return
	}
	answerJSON(w, http.StatusOK, dict("prompt_id", id, "number", number, "node_errors", result.errors))
}

// oddBody answers JSON that is not an object. Python's "in" works on lists and
// strings, so their content matters.
func (p *process) oddBody(w http.ResponseWriter, r *http.Request, body pyjson.Value) {
	holds := func(word string) bool {
		switch b := body.(type) {
		case pyjson.String:
			return strings.Contains(string(b), word)
		case pyjson.Array:
			return contains(b, pyjson.String(word))
		}
		return true
	}
	if holds("number") || holds("prompt") {
		answerInternalError(w, r)
		return
	}
	p.numbers.take()
	answerNoPrompt(w)
}

func answerNoPrompt(w http.ResponseWriter) {
	answerRefusal(w, problem("no_prompt", "No prompt provided", "No prompt provided", dict()), dict())
}

func answerRefusal(w http.ResponseWriter, what, nodeErrors *pyjson.Object) {
	answerJSON(w, http.StatusBadRequest, dict("error", what, "node_errors", nodeErrors))
}

// numbering gives prompts their numbers and times.
type numbering struct {
	mu      sync.Mutex
	created int64 // create_time of the last prompt
	counter int64 // of prompts without a number
}

func (n *numbering) take() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.counter++
	return n.counter - 1
}

// of returns the priority of a prompt: a float if the client sent one, else the
// counter, negated for front.
func (n *numbering) of(req *pyjson.Object) (pyjson.Number, *exception) {
	if v, ok := req.Get("number"); ok {
		return toFloat(v)
	}
	next := n.take()
	if front, ok := req.Get("front"); ok && python.Bool(front) {
		next = -next
	}
	return pyjson.Int(next), nil
}

func (f features) promptID(req *pyjson.Object) (string, bool) {
	v, given := req.Get("prompt_id")
	if !f.clientPromptID || !given {
		return uuid.NewString(), true
	}
	if !f.uuidPromptID {
		return python.Str(v), true
	}
	if _, none := v.(pyjson.Null); none {
		return uuid.NewString(), true
	}
	s, ok := v.(pyjson.String)
	return string(s), ok && canonicalUUID.MatchString(string(s))
}

// time returns the time in milliseconds, never the same twice. A real server
// takes longer than that to accept a prompt, and the jobs list sorts by this time.
func (n *numbering) time() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.created = max(now(), n.created+1)
	return n.created
}

// extraData adds client_id and what newer servers add to extra_data.
func (p *process) extraData(req *pyjson.Object, r *http.Request) (*pyjson.Object, *exception) {
	extra := &pyjson.Object{}
	if v, ok := req.Get("extra_data"); ok {
		o, isObject := v.(*pyjson.Object)
		_, none := v.(pyjson.Null)
		switch {
		case isObject:
			extra = o
		case none && !req.Has("client_id") && !p.feat.hidesSecrets:
			return nil, nil // accepted, but the worker dies of it
		default:
			return nil, raise("TypeError", "'%s' object does not support item assignment", python.TypeName(v))
		}
	}
	if id, ok := req.Get("client_id"); ok {
		extra.Set("client_id", id)
	}
	if p.feat.usageSource {
		if source := r.Header.Get("Comfy-Usage-Source"); source != "" && !extra.Has("comfy_usage_source") {
			extra.Set("comfy_usage_source", pyjson.String(source))
		}
	}
	if p.feat.createTime {
		extra.Set("create_time", pyjson.Int(p.numbers.time()))
	}
	return extra, nil
}
