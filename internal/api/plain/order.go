package plain

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/a1111"
	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/submit"
)

// The services that a job may be for.
const (
	serviceComfyUI = "comfyui"
	serviceA1111   = "a1111"
)

// maxKey bounds an idempotency key, in bytes.
const maxKey = 256

// order is the body of POST /submit.
type order struct {
	service  string
	priority int
	band     job.Band
	key      string // idempotency_key
	request  *catalog.Request
	callback *submit.Callback
}

// errorf is an error of whoever wrote the body.
func errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }

// readOrder reads the body of POST /submit. What it does not know it refuses: a word that
// is misspelt must not look as if it had worked. The error may be a *[catalog.Answer]; any
// other one is a text for the client.
func readOrder(v pyjson.Value) (order, error) {
	out := order{service: serviceComfyUI}
	o, ok := v.(*pyjson.Object)
	if !ok {
		return out, errors.New("the body must be a JSON object with a workflow")
	}
	for name, value := range o.All() {
		if err := out.read(name, value); err != nil {
			return out, err
		}
	}
	if err := checkWorkflow(o.Object("workflow")); err != nil {
		return out, err
	}
	var err error
	if out.service == serviceA1111 {
		if o, err = ofA1111(o); err != nil {
			return out, err
		}
	}
	if out.callback, err = submit.ReadCallback(o); out.callback == nil && err == nil { // else as in POST /prompt
		out.callback, err = submit.ReadCallback(o.Object("extra_data").Object("comfyhub"))
	}
	if err != nil {
		return out, err
	}
	out.request, err = catalog.ReadObject(o, "workflow")
	return out, err
}

// read reads one member.
func (out *order) read(name string, value pyjson.Value) error {
	text, isText := value.(pyjson.String)
	switch name {
	case "workflow":
		if _, ok := value.(*pyjson.Object); !ok {
			return errors.New("workflow: must be an object")
		}
	case "extra_data":
		if _, ok := value.(*pyjson.Object); !ok {
			return errors.New("extra_data: must be an object")
		}
	case "service":
		if text != serviceComfyUI && text != serviceA1111 {
			return errors.New("service: must be comfyui or a1111")
		}
		out.service = string(text)
	case "priority":
		n, _ := value.(pyjson.Number)
		priority, ok := n.Int64()
		if !ok || priority < job.MinPriority || priority > job.MaxPriority {
			return errorf("priority: must be a whole number from %d to %d", job.MinPriority, job.MaxPriority)
		}
		out.priority = int(priority)
	case "band":
		if out.band, isText = job.ParseBand(string(text)); !isText {
			return errors.New("band: must be interactive, normal or bulk")
		}
	case "client_id":
		if !isText || len(text) > catalog.MaxID {
			return errorf("client_id: must be a text of at most %d bytes", catalog.MaxID)
		}
	case "idempotency_key":
		if out.key = string(text); out.key == "" || len(out.key) > maxKey {
			return errorf("idempotency_key: must be a text of 1 to %d bytes", maxKey)
		}
	case "callback_url", "callback_events": // read together
	default:
		return errorf("%.100q is not known: a job has workflow, service, priority, band, callback_url, callback_events, idempotency_key, client_id and extra_data", name)
	}
	return nil
}

// checkWorkflow says what is wrong with a workflow as far as it is none of ComfyUI's checks.
func checkWorkflow(workflow *pyjson.Object) error {
	if workflow == nil {
		return errors.New("workflow: is missing")
	}
	return nil
}

// ofA1111 returns an order with the graph that does its workflow, which is a request as
// A1111 takes it: for img2img if it has init_images, else for txt2img.
func ofA1111(o *pyjson.Object) (*pyjson.Object, error) {
	payload := o.Object("workflow")
	class := a1111.ClassTxt2Img
	if payload.Has("init_images") {
		class = a1111.ClassImg2Img
	}
	checkpoint, loras := a1111.Needs(payload)
	graph, err := a1111.Graph(class, payload, checkpoint, loras)
	if err != nil {
		return nil, errorf("workflow: %w", err)
	}
	v, err := pyjson.Parse(pyjson.Marshal(with(o, "workflow", graph))) // the graph is bytes from here on
	if err != nil {
		return nil, errors.New("workflow: is nested too deeply")
	}
	changed, _ := v.(*pyjson.Object)
	return changed, nil
}

// with returns a copy of an object with another value of a member.
func with(o *pyjson.Object, key string, value pyjson.Value) *pyjson.Object {
	changed := &pyjson.Object{}
	for name, v := range o.All() {
		changed.Set(name, v)
	}
	changed.Set(key, value)
	return changed
}

// keySpace keeps the ids of idempotency keys apart from all others.
const keySpace = "5f2f0a3e-5d0b-4b52-9a55-6a4b6c7d3f21"

// idOf is the id of the one job of a tenant's idempotency key.
func idOf(tenant, key string) string {
	return uuid.NewSHA1(uuid.MustParse(keySpace), []byte(strings.Join([]string{tenant, key}, "\x00"))).String()
}
