package overflow

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// runPodAPI is where RunPod's queue-based endpoints are.
const runPodAPI = "https://api.runpod.ai/v2"

// runPod is an endpoint of RunPod that runs worker-comfyui.
type runPod struct{ *caller }

// NewRunPod returns the endpoint of RunPod with this id; api is for tests. The error says what is wrong
// with the id.
func NewRunPod(id, key, api string, o egress.Options) (Remote, error) {
	if api == "" {
		api = runPodAPI
	}
	c, err := newCaller(api+"/"+id, key, o)
	if err != nil {
		return nil, err
	}
	return runPod{c}, nil
}

// Repeats implements [Remote]: RunPod has no keys by which it tells a repeated request.
func (runPod) Repeats() bool { return false }

// Start implements [Remote].
func (p runPod) Start(ctx context.Context, r Request) (string, error) {
	v, err := pyjson.Parse(r.Workflow)
	if err != nil {
		return "", &RefusedError{Reason: "the workflow is no JSON"}
	}
	input := dict("workflow", v)
	if len(r.Files) > 0 {
		images := make(pyjson.Array, len(r.Files))
		for n, f := range r.Files {
			images[n] = dict("name", pyjson.String(f.Name), "image", pyjson.String(f.Base64))
		}
		input.Set("images", images)
	}
	if r.APIKey != "" {
		input.Set("api_key_comfy_org", pyjson.String(r.APIKey))
	}
	body := dict("input", input, "policy", dict(
		"executionTimeout", pyjson.Int(r.Timeout.Milliseconds()), "ttl", pyjson.Int(r.Lifetime.Milliseconds())))
	answer, err := p.call(ctx, http.MethodPost, "/run", "", pyjson.Strict(pyjson.Marshal(body)))
	return started(answer.String("id"), err)
}

// Status implements [Remote].
func (p runPod) Status(ctx context.Context, id string) (Answer, error) {
	o, err := p.call(ctx, http.MethodGet, "/status/"+id, "", nil)
	if err != nil {
		return Answer{}, known(err)
	}
	return readRunPod(o), nil
}

// Cancel implements [Remote].
func (p runPod) Cancel(ctx context.Context, id string) error {
	_, err := p.call(ctx, http.MethodPost, "/cancel/"+id, "", nil)
	return known(err)
}

// Health implements [Remote].
func (p runPod) Health(ctx context.Context) error {
	_, err := p.call(ctx, http.MethodGet, "/health", "", nil)
	return err
}

// runPodStates are RunPod's names of the states.
func runPodState(name string) State {
	switch name {
	case "IN_PROGRESS", "RUNNING":
		return Running
	case "COMPLETED":
		return Done
	case "FAILED", "ERROR":
		return Failed
	case "CANCELLED":
		return Cancelled
	case "TIMED_OUT":
		return TimedOut
	}
	return Queued
}

// readRunPod reads an answer of /status.
func readRunPod(o *pyjson.Object) Answer {
	a := Answer{State: runPodState(o.String("status")), Progress: -1, Cost: -1}
	// Starting a worker is paid for as well, and is part of the delay.
	a.Took = milliseconds(o, "delayTime") + milliseconds(o, "executionTime")
	output := o.Object("output")
	switch a.State {
	case Running:
		if output.String("type") == "progress" {
			a.Node, a.Progress = output.String("node"), share(output)
		}
	case Done:
		a.Files = runPodFiles(output)
		if reason := output.String("message"); output.String("status") == "error" {
			a.State, a.Reason = Failed, clip(reason)
		}
	case Failed, Cancelled, TimedOut:
		a.Reason = runPodReason(o)
	case Queued:
	}
	return a
}

// share is how far a run is whose worker tells that.
func share(progress *pyjson.Object) float64 {
	value, most := number(progress, "value"), number(progress, "max")
	if !(most > 0) || !(value >= 0) { // NaN as well
		return -1
	}
	return min(value/most, 1)
}

// runPodReason is why a run has failed. An exception of the worker is told as JSON in a text.
func runPodReason(o *pyjson.Object) string {
	reason := o.String("error")
	if v, err := pyjson.Parse([]byte(reason)); err == nil {
		if inner, ok := v.(*pyjson.Object); ok && inner.Has("error_message") {
			reason = inner.String("error_message")
		}
	}
	for _, detail := range o.Object("output").Array("details") {
		if text, ok := detail.(pyjson.String); ok && len(reason) < maxReason {
			reason += "; " + string(text)
		}
	}
	return clip(strings.TrimPrefix(reason, "; "))
}

// runPodFiles are the files in the output of a run: a list, or one as of versions before 5.
func runPodFiles(output *pyjson.Object) (files []OutputFile) {
	for _, v := range output.Array("images") {
		o, ok := v.(*pyjson.Object)
		if !ok {
			continue
		}
		f := OutputFile{Name: o.String("filename")}
		if o.String("type") == "s3_url" {
			f.URL = o.String("data")
		} else {
			f.Base64 = o.String("data")
		}
		files = append(files, f)
	}
	message := output.String("message")
	if len(files) > 0 || message == "" || output.String("status") != "success" {
		return files
	}
	if strings.HasPrefix(message, "https://") {
		return []OutputFile{{URL: message}}
	}
	return []OutputFile{{Base64: message}}
}

// milliseconds is a time of an answer, within bounds.
func milliseconds(o *pyjson.Object, key string) time.Duration {
	return seconds(number(o, key) / 1000)
}

// seconds is a time within bounds.
func seconds(n float64) time.Duration {
	const most = 7 * 24 * 3600
	if !(n > 0) {
		return 0
	}
	return time.Duration(min(n, most) * float64(time.Second))
}

// number is one of an answer, 0 if there is none.
func number(o *pyjson.Object, key string) float64 {
	v, _ := o.Get(key)
	n, _ := v.(pyjson.Number)
	return n.Float64()
}

// dict makes an object of keys and values in turn.
func dict(pairs ...any) *pyjson.Object {
	o := &pyjson.Object{}
	for i := 0; i < len(pairs); i += 2 {
		key, _ := pairs[i].(string)
		v, _ := pairs[i+1].(pyjson.Value)
		o.Set(key, v)
	}
	return o
}
