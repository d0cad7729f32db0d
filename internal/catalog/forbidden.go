package catalog

import (
	"strconv"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// The kinds of an [Objection] are types of ComfyUI's own errors: of a type that it does not
// know, the web UI shows nothing but the name.
const (
	// TooLarge is a number beyond a bound.
	TooLarge = "value_bigger_than_max"
	// NotOffered is a value that others may use.
	NotOffered = ValueNotInList
	// NotAccepted is any other value.
	NotAccepted = "custom_validation_failed"
	// NotValid is about the node itself.
	NotValid = "exception_during_validation"
)

// objectionMessages are ComfyUI's own.
var objectionMessages = map[string]string{
	NotOffered: "Value not in list", NotAccepted: "Custom validation failed for node", NotValid: "Exception when validating node",
}

// Objection is what an operator has against a node of a prompt.
type Objection struct {
	// Node is its id, Input the name of the input; empty for the node itself.
	Node, Input string
	// Kind is TooLarge, NotOffered, NotAccepted or NotValid.
	Kind string
	// Rule names the rule, for programs.
	Rule string
	// Reason is shown to the sender.
	Reason string
	// Value is what the input has; nil if that does not matter.
	Value pyjson.Value
	// Most is the bound of a TooLarge one.
	Most float64
}

// problem is the objection in ComfyUI's form.
func (o Objection) problem() *pyjson.Object {
	message, details, extra := objectionMessages[o.Kind], o.Reason, dict("rule", pyjson.String(o.Rule))
	if o.Input != "" {
		extra.Set("input_name", pyjson.String(o.Input))
		details = o.Input + ": " + o.Reason
	}
	if o.Value != nil {
		extra.Set("received_value", o.Value)
	}
	if o.Kind == TooLarge {
		most := pyjson.Number(strconv.FormatFloat(o.Most, 'f', -1, 64))
		extra.Set("input_config", pyjson.Array{pyjson.String("FLOAT"), dict("max", most)})
		message = "Value bigger than max of " + string(most)
		if n, ok := o.Value.(pyjson.Number); ok {
			message = "Value " + string(n) + " bigger than max of " + string(most)
		}
	}
	return problem(o.Kind, message, details, extra)
}

// Forbid refuses a prompt that has passed the checks, in the form in which ComfyUI refuses one
// whose nodes have errors.
func Forbid(v *Verdict, objections []Objection) *Answer {
	errors := map[string]pyjson.Array{}
	for _, o := range objections {
		errors[o.Node] = append(errors[o.Node], o.problem())
	}
	return refuseFiles(v, errors).Answer
}
