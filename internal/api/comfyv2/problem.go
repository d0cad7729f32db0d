package comfyv2

import (
	"net/http"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// The codes of errors that clients look for.
const (
	codeRequest      = "invalid_request"
	codeWorkflow     = "invalid_workflow"
	codeSaved        = "workflow_format_ui"
	codeMissingAsset = "missing_asset"
	codeKeyUsed      = "idempotency_key_reuse"
	codeNotFound     = "not_found"
	codeNoBlob       = "blob_not_found"
	codeGone         = "output_unavailable"
	codeHash         = "hash_mismatch"
	codeStreams      = "too_many_streams"
)

// problem is an error, as a Go error and as the answer that tells it.
type problem struct {
	status        int
	code, message string
	details       *pyjson.Object
}

func (p *problem) Error() string { return p.message }

// write answers with the one shape that errors have here.
func (p *problem) write(w http.ResponseWriter) {
	api.WriteJSON(w, p.status, pyjson.Strict(pyjson.Marshal(envelope(p.code, p.message, p.details))))
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, status int, code, message string) {
	(&problem{status: status, code: code, message: message}).write(w)
}

func envelope(code, message string, details *pyjson.Object) *pyjson.Object {
	more := pyjson.Value(pyjson.Null{})
	if details != nil {
		more = details
	}
	return object("error", object("code", pyjson.String(code), "message", pyjson.String(message), "details", more))
}

// problemOf is an error as this room tells it, whatever shape it has.
func problemOf(status int, answer []byte) *pyjson.Object {
	v, _ := pyjson.Parse(answer)
	o, _ := v.(*pyjson.Object)
	if o.Object("error").String("code") != "" {
		return o
	}
	message, kind := api.ErrorText(status, o, answer)
	code, details := codeOf(status), (*pyjson.Object)(nil)
	switch {
	case kind == "":
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		details = object("reason", pyjson.String(kind))
	default:
		code = kind
	}
	return envelope(code, message, details)
}

// codeOf is the code of an error of which only the status is known.
func codeOf(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "unauthorized"
	case http.StatusForbidden:
		return "forbidden"
	case http.StatusNotFound:
		return codeNotFound
	case http.StatusMethodNotAllowed:
		return "method_not_allowed"
	case http.StatusRequestEntityTooLarge:
		return "payload_too_large"
	case http.StatusTooManyRequests:
		return "too_many_requests"
	}
	if status >= http.StatusInternalServerError {
		return "internal_error"
	}
	return codeRequest
}
