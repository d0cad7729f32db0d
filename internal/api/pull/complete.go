package pull

import (
	"cmp"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/budget"
	"github.com/comfyhub/comfyhub/internal/facade"
	"github.com/comfyhub/comfyhub/internal/intake"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/worker"
)

var (
	// previewBody is a picture of what a job is doing.
	previewBody = intake.Class{Limit: 2 << 20}
	// resultBody is what a job shows besides files.
	resultBody = intake.Class{Limit: 8 << 20, Values: 100_000}
)

// formOverhead is how much longer than its file a form may be.
const formOverhead = 1 << 20

// holder is the worker that has the job; an error is answered.
func (o *room) holder(w http.ResponseWriter, r *http.Request, c call) *worker.Worker {
	one, err := o.hub().Workers.Holder(c.machine, c.id)
	if err != nil {
		o.refuse(w, r, err)
		return nil
	}
	return one
}

// done answers an order of a worker.
func (o *room) done(w http.ResponseWriter, r *http.Request, err error) {
	if err != nil {
		o.refuse(w, r, err)
		return
	}
	answer(w, http.StatusOK, "updated")
}

// postRenew answers POST /renew-job/ID: the lease starts over. The body may say how far the
// job is, {"node", "value", "max"}, or be a preview as image/jpeg.
func (o *room) postRenew(w http.ResponseWriter, r *http.Request, c call) {
	one := o.holder(w, r, c)
	if one == nil {
		return
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind == "image/jpeg" {
		data, done, ok := o.ReadBody(w, r, c.Requester, previewBody)
		if !ok {
			return
		}
		defer done()
		o.done(w, r, one.Preview(c.id, append([]byte(nil), data...)))
		return
	}
	data, done, ok := o.ReadBody(w, r, c.Requester, api.SmallBody)
	if !ok {
		return
	}
	defer done()
	var p worker.Progress
	if len(data) > 0 {
		v, err := pyjson.Parse(data)
		body, isObject := v.(*pyjson.Object)
		if err != nil || !isObject {
			fail(w, http.StatusBadRequest, "The body must be empty, a JSON object with node, value and max, or an image/jpeg")
			return
		}
		p = worker.Progress{Node: body.String("node"), Value: number(body, "value"), Max: number(body, "max")}
	}
	o.done(w, r, one.Renew(c.id, p))
}

func number(o *pyjson.Object, key string) float64 {
	v, _ := o.Get(key)
	n, _ := v.(pyjson.Number)
	return n.Float64()
}

// postOutput answers POST /upload-output/ID?filename=&node=: a file that the job has made, as
// the body or in a form.
func (o *room) postOutput(w http.ResponseWriter, r *http.Request, c call) {
	one := o.holder(w, r, c)
	if one == nil {
		return
	}
	q := api.QueryOf(r)
	name := q.Get("filename")
	limit := o.hub().Settings.MaxUpload
	content := io.Reader(http.MaxBytesReader(w, r.Body, limit))
	if kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); strings.HasPrefix(kind, "multipart/") {
		if params["boundary"] == "" {
			fail(w, http.StatusBadRequest, "The form cannot be read")
			return
		}
		file, err := fileIn(budget.NewParts(http.MaxBytesReader(w, r.Body, limit+formOverhead), params["boundary"]))
		if err != nil {
			fail(w, http.StatusBadRequest, "The form has no file")
			return
		}
		content, name = http.MaxBytesReader(w, file, limit), cmp.Or(name, file.FileName())
	}
	err := one.Save(c.id, q.Get("node"), name, content)
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		api.WriteTooLarge(w, limit, r.ContentLength)
		return
	}
	o.done(w, r, err)
}

// fileIn returns the first file of a form. Nothing of the fields before it is kept.
func fileIn(form *budget.Parts) (*multipart.Part, error) {
	for {
		part, err := form.Next()
		if err != nil || part.FileName() != "" {
			return part, err
		}
		if _, err := io.Copy(io.Discard, part); err != nil {
			return nil, err
		}
	}
}

// getInput answers GET /hub/v1/job-input/ID?name=: an input file of a job.
func (o *room) getInput(w http.ResponseWriter, r *http.Request, c call) {
	one := o.holder(w, r, c)
	if one == nil {
		return
	}
	file, err := one.Input(c.id, api.QueryOf(r).Get("name"))
	if err != nil {
		o.refuse(w, r, err)
		return
	}
	defer file.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = io.Copy(w, file) // the worker sees that the body ends early
}

// postComplete answers POST /complete-job/ID {result} or {error}.
func (o *room) postComplete(w http.ResponseWriter, r *http.Request, c call) {
	one := o.holder(w, r, c)
	if one == nil {
		return
	}
	v, done, ok := o.ReadJSON(w, r, c.Requester, resultBody)
	if !ok {
		return
	}
	defer done()
	body, _ := v.(*pyjson.Object)
	if fault, ok := body.Get("error"); ok && fault != (pyjson.Null{}) {
		o.done(w, r, one.Fail(c.id, failureOf(fault)))
		return
	}
	result, ok := body.Get("result")
	if !ok {
		fail(w, http.StatusBadRequest, "result or error: one of them must say how the job has ended")
		return
	}
	o.done(w, r, one.Complete(c.id, result))
}

// failureOf reads an error: a text, or {"message", "type", "node"}.
func failureOf(v pyjson.Value) facade.Failure {
	f := facade.Failure{Type: "RuntimeError"}
	switch v := v.(type) {
	case pyjson.String:
		f.Message = string(v)
	case *pyjson.Object:
		f.Message, f.Node = v.String("message"), v.String("node")
		if kind := v.String("type"); kind != "" {
			f.Type = kind
		}
	default:
		f.Message = string(pyjson.Marshal(v))
	}
	return f
}
