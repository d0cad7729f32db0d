package plain

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// writeProblem answers with the one shape that errors have here.
func writeProblem(w http.ResponseWriter, status int, detail string) {
	writeProblemValue(w, status, pyjson.NewObject(pyjson.Member{Key: "detail", Value: pyjson.String(detail)}))
}

func writeProblemValue(w http.ResponseWriter, status int, problem *pyjson.Object) {
	api.WriteJSON(w, status, pyjson.Strict(pyjson.Marshal(problem)))
}

// detailWriter translates the errors that all rooms have in common, such as a body that is
// too large, from ComfyUI's shape into that of this room. Answers that are no errors pass
// through it untouched.
type detailWriter struct {
	http.ResponseWriter

	status int
	held   bytes.Buffer
}

// Unwrap gives [http.ResponseController] the writer below.
func (d *detailWriter) Unwrap() http.ResponseWriter { return d.ResponseWriter }

// WriteHeader implements [http.ResponseWriter].
func (d *detailWriter) WriteHeader(status int) {
	if d.status != 0 {
		return
	}
	if d.status = status; status < http.StatusBadRequest {
		d.ResponseWriter.WriteHeader(status)
	}
}

// Write implements [http.ResponseWriter].
func (d *detailWriter) Write(p []byte) (int, error) {
	d.WriteHeader(http.StatusOK)
	if d.status >= http.StatusBadRequest {
		return d.held.Write(p)
	}
	return d.ResponseWriter.Write(p)
}

// close sends an error.
func (d *detailWriter) close() {
	if d.status < http.StatusBadRequest {
		return
	}
	body := pyjson.Strict(pyjson.Marshal(problemOf(d.status, d.held.Bytes())))
	h := d.ResponseWriter.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	d.ResponseWriter.WriteHeader(d.status)
	_, _ = d.ResponseWriter.Write(body)
}

// problemOf is an error as this room tells it, whatever shape it has.
func problemOf(status int, answer []byte) *pyjson.Object {
	v, _ := pyjson.Parse(answer)
	o, _ := v.(*pyjson.Object)
	if o.Has("detail") {
		return o
	}
	problem := pyjson.NewObject()
	fault := o.Object("error")
	switch {
	case fault != nil:
		problem.Set("detail", pyjson.String(sentence(fault.String("message"), fault.String("details"))))
		problem.Set("type", pyjson.String(fault.String("type")))
	case o.String("error") != "":
		problem.Set("detail", pyjson.String(o.String("error")))
	case o == nil && status < http.StatusInternalServerError && len(answer) > 0 && len(answer) < 1000:
		problem.Set("detail", pyjson.String(answer))
	default:
		problem.Set("detail", pyjson.String(http.StatusText(status)))
	}
	if nodes := o.Object("node_errors"); nodes.Len() > 0 {
		problem.Set("node_errors", nodes)
	}
	return problem
}

// sentence joins the two parts of an error of ComfyUI.
func sentence(message, details string) string {
	switch {
	case details == "" || details == message:
		return message
	case strings.HasSuffix(message, ".") || strings.HasSuffix(message, ":"):
		return message + " " + details
	}
	return message + ": " + details
}
