package catalog

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Mentions reports whether one of these texts can be somewhere in the graph.
func (g *Graph) Mentions(texts ...string) bool {
	return g.nodes() != nil && slices.ContainsFunc(texts, func(text string) bool { return bytes.Contains(g.raw, []byte(text)) })
}

// URLs finds the inputs for files whose value is a URL of one of these schemes, such as
// "data:". No ComfyUI server takes a URL there.
func (c *Catalog) URLs(g *Graph, schemes ...string) []InputFile {
	var found []InputFile
	for _, f := range c.InputFiles(g, nil, nil) {
		if f.Declared && slices.ContainsFunc(schemes, func(scheme string) bool { return strings.HasPrefix(f.Value, scheme) }) {
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
	users := v.Graph.users()
	var reasons []failedOutput
	for id := range v.Graph.nodes().All() {
		if errors[id] == nil {
			continue
		}
		reasons = append(reasons, failedOutput{id, errors[id]})
		nodeErrors.Set(id, dict("errors", errors[id], "dependent_outputs", dependents(v.Outputs, users, id),
			"class_type", pyjson.String(v.Graph.classType(id))))
	}
	return refusedWith(failedOutputs(reasons), nodeErrors)
}

// users returns the nodes that link to each node.
func (g *Graph) users() map[string][]string {
	users := map[string][]string{}
	for id := range g.nodes().All() {
		for _, v := range g.inputs(id).All() {
			if from, ok := linkTarget(v); ok {
				users[from] = append(users[from], id)
			}
		}
	}
	return users
}

// dependents returns the outputs that need a node, each once.
func dependents(outputs []string, users map[string][]string, id string) pyjson.Array {
	needing := map[string]bool{}
	for todo := []string{id}; len(todo) > 0; {
		last := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !needing[last] {
			needing[last] = true
			todo = append(todo, users[last]...)
		}
	}
	found := pyjson.Array{}
	for _, output := range outputs {
		if needing[output] {
			found = append(found, pyjson.String(output))
			delete(needing, output)
		}
	}
	return found
}
