package comfyui

import (
	"slices"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// ShapeJob makes an entry of the jobs API what web interfaces accept. They
// check each member of each entry and show an empty list if a single one is of
// another type, which a workflow id or an output of a custom node may well be.
// Optional members of another type are left out, and required ones are empty.
func ShapeJob(o *pyjson.Object) {
	keep(o, isNumber, "execution_start_time", "execution_end_time")
	keep(o, isText, "workflow_id")
	keep(o, isPreview, "preview_output")
	v, ok := o.Get("execution_error")
	if !ok {
		return
	}
	failure, ok := v.(*pyjson.Object)
	if !ok {
		o.Delete("execution_error")
		return
	}
	failure = pyjson.Clone(failure).(*pyjson.Object)
	keep(failure, isText, "prompt_id")
	keep(failure, isNumber, "timestamp")
	keep(failure, isTexts, "executed")
	for _, key := range []string{"node_id", "node_type", "exception_message", "exception_type"} {
		demand(failure, isText, key, pyjson.String(""))
	}
	demand(failure, isTexts, "traceback", pyjson.Array{})
	o.Set("execution_error", failure)
}

// keep drops those of the members that are not of a type.
func keep(o *pyjson.Object, is func(pyjson.Value) bool, keys ...string) {
	for _, key := range keys {
		if v, ok := o.Get(key); ok && !is(v) {
			o.Delete(key)
		}
	}
}

// demand sets a member that is missing or not of a type.
func demand(o *pyjson.Object, is func(pyjson.Value) bool, key string, otherwise pyjson.Value) {
	if v, _ := o.Get(key); v == nil || !is(v) {
		o.Set(key, otherwise)
	}
}

func isNumber(v pyjson.Value) bool {
	_, ok := v.(pyjson.Number)
	return ok && v != pyjson.Value(pyjson.Number("NaN")) // which would become null
}

func isText(v pyjson.Value) bool {
	_, ok := v.(pyjson.String)
	return ok
}

func isTexts(v pyjson.Value) bool {
	list, ok := v.(pyjson.Array)
	return ok && !slices.ContainsFunc(list, func(v pyjson.Value) bool { return !isText(v) })
}

// isPreview reports whether an output can be shown beside its job.
func isPreview(v pyjson.Value) bool {
	o, ok := v.(*pyjson.Object)
	if !ok {
		return false
	}
	for _, key := range []string{"filename", "subfolder", "content", "display_name"} {
		if v, ok := o.Get(key); ok && !isText(v) {
			return false
		}
	}
	for _, key := range []string{"nodeId", "mediaType"} {
		if v, _ := o.Get(key); !isText(v) {
			return false
		}
	}
	switch kind, _ := o.Get("type"); kind {
	case nil, pyjson.String("output"), pyjson.String("input"), pyjson.String("temp"):
		return true
	}
	return false
}
