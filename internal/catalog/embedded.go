package catalog

import (
	"bytes"
	"cmp"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// DataURLs finds the inputs for files whose value is a data: URL, which no ComfyUI
// server takes there.
func (c *Catalog) DataURLs(g *Graph) []InputFile {
	if g.nodes() == nil || !bytes.Contains(g.raw, []byte("data:")) {
		return nil
	}
	var found []InputFile
	for _, f := range c.InputFiles(g, nil, nil) {
		if f.Declared && strings.HasPrefix(f.Value, "data:") {
			found = append(found, f)
		}
	}
	return found
}

// Complaint is what is wrong with an input for a file.
type Complaint struct {
	File InputFile
	// Reason is shown to the sender.
	Reason string
}

// RefuseInputs refuses a prompt for what is wrong with some of its files, in the form
// in which ComfyUI refuses one whose file is missing.
func (c *Catalog) RefuseInputs(g *Graph, complaints []Complaint) *Answer {
	whole := &Verdict{Graph: g}
	for id := range g.nodes().All() {
		if e := c.entry(g.classType(id)); e != nil && e.outputNode() {
			whole.Outputs = append(whole.Outputs, id)
		}
	}
	errors := map[string]pyjson.Array{}
	for _, k := range complaints {
		f := k.File
		about := cmp.Or(existenceChecks[[2]string{g.classType(f.Node), f.Input}], "Invalid file: ")
		errors[f.Node] = append(errors[f.Node], fileProblem(f.Input, about+k.Reason))
	}
	return refuseFiles(whole, errors).Answer
}

// fileProblem is ComfyUI's error for a file that is not there.
func fileProblem(input, complaint string) *pyjson.Object {
	return problem("custom_validation_failed", "Custom validation failed for node",
		input+" - "+complaint, dict("input_name", pyjson.String(input)))
}

// refuseFiles refuses a prompt for errors of its nodes. Of the verdict, the graph and
// the outputs count.
func refuseFiles(v *Verdict, errors map[string]pyjson.Array) *Verdict {
	nodeErrors := &pyjson.Object{}
	var reasons []pyjson.Array
	for id := range v.Graph.nodes().All() {
		if errors[id] == nil {
			continue
		}
		reasons = append(reasons, errors[id])
		nodeErrors.Set(id, dict("errors", errors[id], "dependent_outputs", dependents(v, id),
			"class_type", pyjson.String(v.Graph.classType(id))))
	}
	return refusedWith(failedOutputs(reasons), nodeErrors)
}
