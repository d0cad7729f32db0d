package catalog

import (
	"fmt"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Answer is a complete HTTP answer that refuses a request. It implements error, so
// that it can be returned as one.
type Answer struct {
	Status      int
	ContentType string
	Body        []byte
	// Numbered says that the prompt has had its number in the queue.
	Numbered bool
}

// Error describes the answer without its body, which may quote a user's text.
func (a *Answer) Error() string {
	return fmt.Sprintf("catalog: the request is answered with status %d", a.Status)
}

// Reserved refuses a prompt that only instances could run which other tenants have for
// themselves.
func Reserved() *Answer {
	return refusal(problem("instances_reserved",
		"Cannot run this prompt: all instances that could run it are reserved for other tenants", "", nil), nil)
}

// AtInstance is what an instance says about a prompt that it does not take, with its answer 400.
func AtInstance(body []byte) *Answer {
	return &Answer{Status: http.StatusBadRequest, ContentType: jsonType, Body: body, Numbered: true}
}

// jsonType is the Content-Type of a refusal.
const jsonType = "application/json; charset=utf-8"

// internalError is a ComfyUI server's answer when its code throws.
func internalError() *Answer {
	return &Answer{
		Status:      http.StatusInternalServerError,
		ContentType: "text/plain; charset=utf-8",
		Body:        []byte("500 Internal Server Error\n\nServer got itself in trouble"),
	}
}

// refusal is a 400 in ComfyUI's format.
func refusal(problem, nodeErrors *pyjson.Object) *Answer {
	if nodeErrors == nil {
		nodeErrors = &pyjson.Object{}
	}
	return &Answer{
		Status:      http.StatusBadRequest,
		ContentType: jsonType,
		Body:        pyjson.Marshal(dict("error", problem, "node_errors", nodeErrors)),
	}
}

// problem returns one error object, for the whole prompt or for one node.
func problem(kind, message, details string, extra *pyjson.Object) *pyjson.Object {
	if extra == nil {
		extra = &pyjson.Object{}
	}
	return dict("type", pyjson.String(kind), "message", pyjson.String(message),
		"details", pyjson.String(details), "extra_info", extra)
}

// dict returns an object made of alternating keys (string) and values.
func dict(pairs ...any) *pyjson.Object {
	o := &pyjson.Object{}
	for i := 0; i+1 < len(pairs); i += 2 {
		value, _ := pairs[i+1].(pyjson.Value)
		o.Set(pairs[i].(string), value)
	}
	return o
}
