package comfyv2

import (
	"errors"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// readRequest reads the body of POST /api/v2/jobs; what it does not know is left out, as by the
// original. The error is a *[problem] or a *[catalog.Answer].
func readRequest(v pyjson.Value) (*pyjson.Object, label, error) {
	o, ok := v.(*pyjson.Object)
	if !ok {
		return nil, label{}, &problem{status: http.StatusBadRequest, code: codeRequest, message: "The body must be a JSON object."}
	}
	unfit := func(code, message string) error {
		return &problem{status: http.StatusUnprocessableEntity, code: code, message: message}
	}
	for _, reserved := range []string{"webhook_url", "inputs"} {
		if value, there := o.Get(reserved); there && value != (pyjson.Null{}) {
			return nil, label{}, unfit(codeWorkflow, "'webhook_url' and 'inputs' are reserved and not accepted.")
		}
	}
	workflow := o.Object("workflow")
	if workflow == nil {
		return nil, label{}, unfit(codeWorkflow, "'workflow' is missing: a graph in the API format.")
	}
	nodes, _ := workflow.Get("nodes")
	if _, saved := nodes.(pyjson.Array); saved && workflow.Has("links") {
		return nil, label{}, unfit(codeSaved, "This is a workflow as the web UI saves it. Export it in the API format.")
	}
	l, err := readLabel(o)
	if err == nil {
		err = checkExtraData(o)
	}
	for _, name := range o.Keys() {
		if name != "workflow" && name != "extra_data" {
			o.Delete(name)
		}
	}
	return o, l, err
}

// checkExtraData checks the member extra_data, which is closed: unlike that of a prompt, it has
// nothing that could reach a custom node unnoticed.
func checkExtraData(o *pyjson.Object) error {
	v, there := o.Get("extra_data")
	if _, null := v.(pyjson.Null); !there || null {
		o.Delete("extra_data")
		return nil
	}
	odd := &problem{status: http.StatusBadRequest, code: codeRequest, message: "'extra_data' may have 'api_key_comfy_org', a text, and 'extra_pnginfo', an object with 'workflow', an object."}
	extra, ok := v.(*pyjson.Object)
	if !ok {
		return odd
	}
	for name, value := range extra.All() {
		switch value := value.(type) {
		case pyjson.String:
			if name != "api_key_comfy_org" {
				return odd
			}
		case *pyjson.Object:
			if name != "extra_pnginfo" || value.Len() > 1 || value.Len() == 1 && value.Object("workflow") == nil {
				return odd
			}
		default:
			return odd
		}
	}
	return nil
}

// readGraph makes a prompt of a request.
func readGraph(o *pyjson.Object) (*catalog.Request, error) {
	request, err := catalog.ReadObject(o, "workflow")
	var answer *catalog.Answer
	if err != nil && !errors.As(err, &answer) {
		return nil, &problem{status: http.StatusUnprocessableEntity, code: codeWorkflow, message: err.Error()}
	}
	return request, err
}
