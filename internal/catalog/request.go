package catalog

import (
	"slices"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// Request is the body of POST /prompt. The byte slices are parts of the body
// unless said otherwise, and must not be changed.
type Request struct {
	Graph *Graph
	// ClientID is the client whose socket gets the messages: client_id of the
	// body, else of extra_data; "" for none.
	ClientID string
	// PromptID is the id the client chose; "" for none. Null, an empty string
	// and values that are no strings count as none.
	PromptID string
	// RawPromptID is the id as sent; nil when it was absent.
	RawPromptID []byte
	// Number is the place in the queue that the client asked for, as a float
	// literal ("2.0", "NaN"); "" when it did not.
	Number pyjson.Number
	// Front asks for a place before all that wait. It is without effect beside
	// a Number.
	Front bool
	// Targets is partial_execution_targets as sent; nil when absent.
	Targets []byte
	// Extra is extra_data without client_id and secrets, "{}" when absent.
	Extra []byte
	// ExtraData is extra_data as it was parsed; nil when absent. It has the
	// secrets.
	ExtraData *pyjson.Object
	// Secrets are the API keys from extra_data as an object; nil without any.
	Secrets []byte
	// Other is an object of the fields that ComfyUI does not know; custom
	// nodes may. nil without any.
	Other []byte
}

// MaxID is the longest prompt_id and client_id, in bytes. Both are kept long
// after the prompt itself, in several places.
const MaxID = 256

// isSecret reports whether a member of extra_data must not be stored in clear
// nor shown to anybody.
func isSecret(key string) bool {
	return key == "auth_token_comfy_org" || key == "api_key_comfy_org"
}

// fields are the members of the body that ComfyUI knows.
var fields = map[string]bool{
	"prompt": true, "client_id": true, "prompt_id": true, "number": true,
	"front": true, "partial_execution_targets": true, "extra_data": true,
}

// ParseRequest reads the body of POST /prompt, whatever its Content-Type said.
// The error is an *[Answer] to be sent as it is: what ComfyUI answers to the
// same body (500 where its code throws, 400 no_prompt), except that a
// client_id that is neither a string nor null is refused with a 400: an object
// there ends the process of a real server.
//
// Any extra_data that is no object is a 500, as in new servers; older ones
// accept a null there without client_id, and then their worker dies.
func ParseRequest(body []byte) (*Request, error) {
	v, err := pyjson.Parse(body)
	if err != nil {
		return nil, trouble()
	}
	return ReadRequest(v)
}

// ReadRequest is [ParseRequest] for a body that [pyjson.Parse] has read.
func ReadRequest(v pyjson.Value) (*Request, error) {
	o, ok := v.(*pyjson.Object)
	if !ok {
		return nil, answerOddBody(v)
	}
	r := &Request{Extra: []byte("{}")}
	if number, ok := o.Get("number"); ok {
		n, understood, fault := python.Float(number)
		if fault != nil || !understood {
			return nil, trouble()
		}
		r.Number = n
	}
	front, _ := o.Get("front")
	r.Front = python.Bool(front)
	prompt, ok := o.Get("prompt")
	if !ok {
		return nil, noPrompt()
	}
	r.Graph = &Graph{raw: o.Raw("prompt"), root: prompt}
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

// answerOddBody answers a body that is JSON but no object. ComfyUI tests it
// with Python's in operator, which finds items of lists and parts of strings,
// and then throws.
func answerOddBody(v pyjson.Value) error {
	for _, key := range []string{"number", "front", "prompt"} {
		switch v := v.(type) {
		case pyjson.Array:
			if slices.Contains(v, pyjson.Value(pyjson.String(key))) {
				return trouble()
			}
		case pyjson.String:
			if strings.Contains(string(v), key) {
				return trouble()
			}
		default:
			return trouble()
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
		return trouble()
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

// readClient finds the client id; the one in the body wins.
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

// without writes an object anew from the bytes of its members, leaving some
// out. The values come through as they were sent.
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
