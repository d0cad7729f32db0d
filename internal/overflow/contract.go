package overflow

import (
	"context"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// service is an endpoint that keeps to the contract in docs/scaling.md.
type service struct{ *caller }

// NewService returns the endpoint at an https URL; key may be empty. The error says what is wrong with
// the URL.
func NewService(url, key string, o egress.Options) (Remote, error) {
	c, err := newCaller(url, key, o)
	if err != nil {
		return nil, err
	}
	return service{c}, nil
}

// Repeats implements [Remote]: a service makes one run for each key.
func (service) Repeats() bool { return true }

// Start implements [Remote].
func (s service) Start(ctx context.Context, r Request) (string, error) {
	v, err := pyjson.Parse(r.Workflow)
	if err != nil {
		return "", &RefusedError{Reason: "the workflow is no JSON"}
	}
	files := make(pyjson.Array, len(r.Files))
	for n, f := range r.Files {
		files[n] = dict("name", pyjson.String(f.Name), "data", pyjson.String(f.Base64))
	}
	body := dict("workflow", v, "outputs", pyjson.Strings(r.Outputs), "files", files,
		"timeout", pyjson.Float(r.Timeout.Seconds()), "lifetime", pyjson.Float(r.Lifetime.Seconds()))
	if r.APIKey != "" {
		body.Set("api_key_comfy_org", pyjson.String(r.APIKey))
	}
	answer, err := s.call(ctx, http.MethodPost, "/runs", r.Key, pyjson.Strict(pyjson.Marshal(body)))
	return started(answer.String("id"), err)
}

// Status implements [Remote].
func (s service) Status(ctx context.Context, id string) (Answer, error) {
	o, err := s.call(ctx, http.MethodGet, "/runs/"+id, "", nil)
	if err != nil {
		return Answer{}, known(err)
	}
	return readService(o), nil
}

// Cancel implements [Remote].
func (s service) Cancel(ctx context.Context, id string) error {
	_, err := s.call(ctx, http.MethodDelete, "/runs/"+id, "", nil)
	return known(err)
}

// Health implements [Remote].
func (s service) Health(ctx context.Context) error {
	_, err := s.call(ctx, http.MethodGet, "/health", "", nil)
	return err
}

// readService reads what a service says about a run.
func readService(o *pyjson.Object) Answer {
	a := Answer{Progress: -1, Cost: -1, Node: o.String("node"), Took: seconds(number(o, "seconds")), Reason: clip(o.String("error"))}
	switch o.String("status") {
	case "running":
		a.State = Running
	case "succeeded":
		a.State = Done
	case "failed":
		a.State = Failed
	case "cancelled":
		a.State = Cancelled
	case "timed_out":
		a.State = TimedOut
	}
	if p := number(o, "progress"); o.Has("progress") && p >= 0 {
		a.Progress = min(p, 1)
	}
	if c := number(o, "cost"); o.Has("cost") && c >= 0 && c <= maxCost {
		a.Cost = c
	}
	for _, v := range o.Array("files") {
		if f, ok := v.(*pyjson.Object); ok {
			a.Files = append(a.Files, OutputFile{Node: f.String("node"), Name: f.String("name"), Base64: f.String("data"), URL: f.String("url")})
		}
	}
	return a
}

// maxCost bounds what one run can cost.
const maxCost = 1e6
