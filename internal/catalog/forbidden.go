package catalog

import "github.com/comfyhub/comfyhub/internal/pyjson"

// Objection is what an operator has against a node of a prompt.
type Objection struct {
	// Node is its id, Input the name of the input; empty for the node itself.
	Node, Input string
	// Reason is shown to the sender.
	Reason string
}

// Forbid refuses a prompt that has passed the checks, in the form in which ComfyUI refuses one
// whose nodes have errors.
func Forbid(v *Verdict, objections []Objection) *Answer {
	errors := map[string]pyjson.Array{}
	for _, o := range objections {
		extra, details := &pyjson.Object{}, o.Reason
		if o.Input != "" {
			extra.Set("input_name", pyjson.String(o.Input))
			details = o.Input + ": " + o.Reason
		}
		errors[o.Node] = append(errors[o.Node], problem("not_allowed", "The operator of the hub does not allow this", details, extra))
	}
	return refuseFiles(v, errors).Answer
}
