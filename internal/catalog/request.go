package catalog

import (
	"slices"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// Request is the body of POST /prompt. The byte slices are parts of the body unless
// said otherwise, and must not be changed.
type Request struct {
	Graph *Graph
	// ClientID is the client whose socket receives the messages: client_id of the
	// body, else of extra_data; "" for none.
	ClientID string
	// PromptID is the id the client chose; "" for none. Null, an empty string and
	// values that are not strings count as none.
	PromptID string
	// RawPromptID is the id as sent; nil if absent.
	RawPromptID []byte
	// Number is the place in the queue that the client asked for, as a float
	// literal ("2.0", "NaN"); "" if it did not.
	Number pyjson.Number
	// Front asks for a place before all waiting jobs. It has no effect together
	// with a Number.
	Front bool
	// Targets is partial_execution_targets as sent; nil if absent.
	Targets []byte
	// Extra is extra_data without client_id and secrets, "{}" if absent.
	Extra []byte
	// ExtraData is extra_data as parsed, including the secrets; nil if absent.
	ExtraData *pyjson.Object
	// Secrets is an object with the API keys from extra_data; nil without any.
	Secrets []byte
	// Other is an object of the members that ComfyUI does not know, but handlers of custom
	// nodes may; nil without any.
	Other []byte
}

// MaxID is the longest prompt_id and client_id, in bytes. Both are kept, in several
// places, long after the prompt itself.
const MaxID = 256

// isSecret reports whether a member of extra_data must neither be stored in clear
// text nor be shown to anybody.
func isSecret(key string) bool {
	return key == "auth_token_comfy_org" || key == "api_key_comfy_org"
}

// fields are the members of the body that ComfyUI knows.
var fields = map[string]bool{
	"prompt": true, "client_id": true, "prompt_id": true, "number": true,
	"front": true, "partial_execution_targets": true, "extra_data": true,
}

// ParseRequest parses the body of POST /prompt, whatever its Content-Type is. The
// error is an *[Answer] to be sent unchanged: it is ComfyUI's answer to the same
// body (500 where its code throws, 400 no_prompt), except that a client_id that is
// neither a string nor null is refused with a 400: an object there ends the process
// of a real server.
//
// Any extra_data that is not an object is a 500, as in new servers; older ones
// accept a null there without client_id, and then their worker dies.
func ParseRequest(body []byte) (*Request, error) {
	v, err := pyjson.Parse(body)
	if err != nil {
		return nil, internalError()
	}
	return ReadRequest(v)
}

// ReadRequest is [ParseRequest] for a body that was already parsed with
// [pyjson.Parse].
func ReadRequest(v pyjson.Value) (*Request, error) {
	o, ok := v.(*pyjson.Object)
	if !ok {
		return nil, answerOddBody(v)
	}
	r, err := ReadObject(o, "prompt")
	if isSaved(o.Object("prompt")) || !o.Has("prompt") && isSaved(o) {
		return nil, savedWorkflow()
	}
	return r, err
}

// isSaved reports whether an object is what "Save" in the web UI writes: a graph for its
// editor. In a prompt a node could be called nodes, but none is a list.
func isSaved(o *pyjson.Object) bool {
	nodes, _ := o.Get("nodes")
	_, ok := nodes.(pyjson.Array)
	return ok && (o.Has("links") || o.Has("version"))
}

func savedWorkflow() *Answer {
	return refusal(problem("invalid_prompt",
		"This is a workflow as the web UI saves it for its editor, not a prompt: in the web UI choose \"Export (API)\" and send that file instead.", "", nil), nil)
}

// ReadObject is [ReadRequest] for a body of another dialect, in which the graph is the
// member of the given name. The other members are called as in POST /prompt.
func ReadObject(o *pyjson.Object, graph string) (*Request, error) {
	r := &Request{Extra: []byte("{}")}
	if number, ok := o.Get("number"); ok {
		n, understood, fault := python.Float(number)
		if fault != nil || !understood {
			return nil, internalError()
		}
		r.Number = n
	}
	front, _ := o.Get("front")
	r.Front = python.Bool(front)
	prompt, ok := o.Get(graph)
	if !ok {
		return nil, noPrompt()
	}
	r.Graph = &Graph{raw: o.Raw(graph), root: prompt}
	if len(o.String("prompt_id")) > MaxID {
		return nil, refusal(problem("invalid_prompt_id", "prompt_id is too long",
			"prompt_id may have "+strconv.Itoa(MaxID)+" bytes; omit it to be given one", nil), nil)
	}
	r.RawPromptID = o.Raw("prompt_id")
	r.PromptID = o.String("prompt_id")
	r.Targets = o.Raw("partial_execution_targets")
	if err := r.readExtra(o); err != nil {
		return nil, err
	}
	if err := r.readClient(o); err != nil {
		return nil, err
	}
	r.Other = without(o, func(key string) bool { return fields[key] })
	if string(r.Other) == "{}" {
		r.Other = nil
	}
	return r, nil
}

// answerOddBody answers a body that is JSON but not an object. ComfyUI tests it
// with Python's in operator, which finds items of lists and parts of strings, and
// then throws.
func answerOddBody(v pyjson.Value) error {
	for _, key := range []string{"number", "front", "prompt"} {
		switch v := v.(type) {
		case pyjson.Array:
			if slices.Contains(v, pyjson.Value(pyjson.String(key))) {
				return internalError()
			}
		case pyjson.String:
			if strings.Contains(string(v), key) {
				return internalError()
			}
		default:
			return internalError()
		}
	}
	return noPrompt()
}

func noPrompt() *Answer {
	return refusal(problem("no_prompt", "No prompt provided", "No prompt provided", nil), nil)
}

// readExtra splits extra_data into what may be stored and the secrets.
func (r *Request) readExtra(o *pyjson.Object) error {
	v, ok := o.Get("extra_data")
	if !ok {
		return nil
	}
	extra, ok := v.(*pyjson.Object)
	if !ok {
		return internalError()
	}
	r.Extra, r.ExtraData = o.Raw("extra_data"), extra
	if hidden := without(extra, func(key string) bool { return !isSecret(key) }); string(hidden) != "{}" {
		r.Secrets = hidden
	}
	if r.Secrets != nil || extra.Has("client_id") {
		r.Extra = without(extra, func(key string) bool { return isSecret(key) || key == "client_id" })
	}
	return nil
}

// readClient finds the client id; the one in the body takes precedence.
func (r *Request) readClient(o *pyjson.Object) error {
	id, ok := o.Get("client_id")
	if !ok {
		id, _ = o.Object("extra_data").Get("client_id")
	}
	switch id := id.(type) {
	case nil, pyjson.Null:
	case pyjson.String:
		if len(id) > MaxID {
			return refusal(problem("invalid_client_id", "client_id is too long",
				"client_id may have "+strconv.Itoa(MaxID)+" bytes", nil), nil)
		}
		r.ClientID = string(id)
	default:
		return refusal(problem("invalid_client_id", "client_id must be a string",
			"client_id must be the clientId of a websocket, a string; omit it if there is none", nil), nil)
	}
	return nil
}

// without rebuilds an object from the bytes of its members, leaving some out. The
// values are copied as sent.
func without(o *pyjson.Object, drop func(key string) bool) []byte {
	out := []byte{'{'}
	for _, key := range o.Keys() {
		if drop(key) {
			continue
		}
		if len(out) > 1 {
			out = append(out, ", "...)
		}
		out = pyjson.AppendString(out, key)
		out = append(out, ": "...)
		out = append(out, o.Raw(key)...)
	}
	return append(out, '}')
}
