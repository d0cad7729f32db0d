package api

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// ErrorWriter translates the errors that all rooms have in common, such as a body that is
// too large, from ComfyUI's shape into that of a room. Answers that are no errors pass
// through it untouched.
type ErrorWriter struct {
	http.ResponseWriter

	// Translate returns an error, whatever shape it has, as the room tells it.
	Translate func(status int, answer []byte) *pyjson.Object

	status int
	held   bytes.Buffer
}

// Translating gives a handler a writer that translates errors.
func Translating(translate func(status int, answer []byte) *pyjson.Object, handler Handler) Handler {
	return func(w http.ResponseWriter, r *http.Request, a Requester, path []string) {
		e := &ErrorWriter{ResponseWriter: w, Translate: translate}
		defer e.close()
		handler(e, r, a, path)
	}
}

// maxHeld bounds an error that waits to be translated, in bytes: a file that an instance answers
// with one is passed on as it comes.
const maxHeld = 4 << 20

var errHeld = errors.New("api: an error is too long")

// Unwrap gives [http.ResponseController] the writer below.
func (e *ErrorWriter) Unwrap() http.ResponseWriter { return e.ResponseWriter }

// WriteHeader implements [http.ResponseWriter].
func (e *ErrorWriter) WriteHeader(status int) {
	if e.status != 0 {
		return
	}
	if e.status = status; status < http.StatusBadRequest {
		e.ResponseWriter.WriteHeader(status)
	}
}

// Write implements [http.ResponseWriter].
func (e *ErrorWriter) Write(p []byte) (int, error) {
	e.WriteHeader(http.StatusOK)
	if e.status < http.StatusBadRequest {
		return e.ResponseWriter.Write(p)
	}
	if e.held.Len()+len(p) > maxHeld {
		return 0, errHeld
	}
	return e.held.Write(p)
}

// FlushError implements the interface of [http.ResponseController]: an error has no header yet
// that could be sent.
func (e *ErrorWriter) FlushError() error {
	if e.status >= http.StatusBadRequest {
		return nil
	}
	return http.NewResponseController(e.ResponseWriter).Flush()
}

// close sends an error.
func (e *ErrorWriter) close() {
	if e.status < http.StatusBadRequest {
		return
	}
	body := pyjson.Strict(pyjson.Marshal(e.Translate(e.status, e.held.Bytes())))
	h := e.ResponseWriter.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	e.ResponseWriter.WriteHeader(e.status)
	_, _ = e.ResponseWriter.Write(body)
}

// ErrorText is what an error says, whatever shape it has, and its kind, if it has one.
func ErrorText(status int, answer *pyjson.Object, raw []byte) (text, kind string) {
	fault := answer.Object("error")
	switch {
	case fault != nil:
		return Sentence(fault.String("message"), fault.String("details")), fault.String("type")
	case answer.String("error") != "":
		return answer.String("error"), ""
	case answer == nil && status < http.StatusInternalServerError && len(raw) > 0 && len(raw) < 1000:
		return string(raw), ""
	}
	return http.StatusText(status), ""
}

// Sentence joins the two parts of an error of ComfyUI.
func Sentence(message, details string) string {
	switch {
	case details == "" || details == message:
		return message
	case strings.HasSuffix(message, ".") || strings.HasSuffix(message, ":"):
		return message + " " + details
	}
	return message + ": " + details
}
