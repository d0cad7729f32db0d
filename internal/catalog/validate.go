package catalog

import (
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// Prompt is the input of [Catalog.Validate].
type Prompt struct {
	Graph *Graph
	// Targets is partial_execution_targets as sent; nil if absent.
	Targets []byte
	// Version is what the hub emulates; nil for the oldest.
	Version Version
	// Known reports whether the hub has a file that it can give to the instance. If
	// nil, every file is treated as known.
	Known func(job.FileRef) bool
	// OwnFiles refuses prompts that name a file that Known does not have, even if
	// an instance has it: there it may be somebody else's.
	OwnFiles bool
	// Makes reports whether all instances are known to make a check that a class of
	// a custom node pack may replace. If nil, none is known.
	Makes func(Question) bool
}

// Verdict is the result of a validation.
type Verdict struct {
	// Answer refuses the prompt; nil if it is accepted.
	Answer *Answer
	// Error is the top-level error object of a refusal; nil for a 500.
	Error *pyjson.Object
	// NodeErrors is also part of the answer to an accepted prompt, where it says
	// why some of the outputs will not run. It is never nil.
	NodeErrors *pyjson.Object
	// Outputs are the output nodes to run, in the order of the graph. With an empty
	// catalog it is empty for an accepted prompt: an instance must find them.
	Outputs []string
	// Graph is the graph with literals coerced and hazards repaired; every other
	// byte is as sent. It is nil in a refusal.
	Graph *Graph
	// Doubtful means that only an instance can tell whether it accepts the prompt,
	// because it uses classes that are not ComfyUI's own, or checks failed that the
	// instance may not make.
	Doubtful bool
	// Unsure lists, as "node: error type", checks that failed but that an instance
	// may not make. They did not count.
	Unsure []string
	// Unlisted are the classes, sorted, with a value that is in none of the known
	// lists. An instance may list it by now, so they are set for accepted prompts,
	// too.
	Unlisted []string
}

// Accepted reports whether the prompt can be queued.
func (v *Verdict) Accepted() bool { return v.Answer == nil }

func refused(answer *Answer, problem, nodeErrors *pyjson.Object) *Verdict {
	if nodeErrors == nil {
		nodeErrors = &pyjson.Object{}
	}
	return &Verdict{Answer: answer, Error: problem, NodeErrors: nodeErrors}
}

func refusedWith(problem, nodeErrors *pyjson.Object) *Verdict {
	return refused(refusal(problem, nodeErrors), problem, nodeErrors)
}

// Validate checks a prompt as POST /prompt of a ComfyUI server does. With an empty
// catalog it checks only the shape.
func (c *Catalog) Validate(p Prompt) *Verdict {
	b := behaviourOf(p.Version)
	nodes := p.Graph.nodes()
	if nodes == nil {
		return refuseShapeless(p.Graph, b)
	}
	if b.rewrites {
		if verdict := checkRewritable(nodes); verdict != nil {
			return verdict
		}
	}
	outputs, verdict := c.selectOutputs(p, b)
	if verdict != nil {
		return verdict
	}
	if c.Empty() {
		verdict = acceptUnchecked(p.Graph)
	} else {
		verdict = c.validateOutputs(p, b, outputs)
	}
	if p.OwnFiles && verdict.Accepted() {
		unlisted := verdict.Unlisted
		verdict = c.refuseUnknownFiles(p, verdict)
		verdict.Unlisted = unlisted
	}
	return verdict
}

// refuseShapeless answers a graph that is not an object.
func refuseShapeless(g *Graph, b behaviour) *Verdict {
	if !b.rewrites && g != nil {
		switch root := g.root.(type) {
		case pyjson.Array:
			if len(root) == 0 {
				return refusedWith(noOutputs(), nil)
			}
		case pyjson.String:
			if root == "" {
				return refusedWith(noOutputs(), nil)
			}
		}
	}
	return refused(internalError(), nil, nil)
}

func noOutputs() *pyjson.Object {
	return problem("prompt_no_outputs", "Prompt has no outputs", "", nil)
}

// checkRewritable answers prompts on which the step that replaces old classes
// throws.
func checkRewritable(nodes *pyjson.Object) *Verdict {
	for _, v := range nodes.All() {
		node, ok := v.(*pyjson.Object)
		if !ok {
			return refused(internalError(), nil, nil)
		}
		if inputs, ok := node.Get("inputs"); ok && node.Has("class_type") {
			if _, ok := inputs.(*pyjson.Object); !ok {
				return refused(internalError(), nil, nil)
			}
		}
	}
	return nil
}

// selectOutputs checks the class of each node and returns the output nodes to run.
func (c *Catalog) selectOutputs(p Prompt, b behaviour) (outputs []string, verdict *Verdict) {
	chosen, err := parseTargets(p.Targets)
	if err != nil {
		return nil, refused(internalError(), nil, nil)
	}
	nodes := p.Graph.nodes()
	for id, v := range nodes.All() {
		node, isObject := v.(*pyjson.Object)
		if !isObject {
			return nil, refuseOddNode(id, v)
		}
		classType, ok := node.Get("class_type")
		if !ok {
			return nil, refuseMissingType(id, node, b)
		}
		switch classType.(type) {
		case pyjson.Array, *pyjson.Object: // Python cannot look them up
			return nil, refused(internalError(), nil, nil)
		}
		name, _ := classType.(pyjson.String)
		e := c.entry(string(name))
		if e == nil && b.rewrites && c.replaced(string(name)) {
			e = c.entry(c.replaces[string(name)])
		}
		if e == nil {
			if c.Empty() && name != "" {
				continue
			}
			return nil, refuseUnknownType(id, node, classType, b)
		}
		if !e.outputNode() {
			continue
		}
		wanted, fault := chosen(id)
		if fault {
			return nil, refused(internalError(), nil, nil)
		}
		if wanted {
			outputs = append(outputs, id)
		}
	}
	if len(outputs) == 0 && (!c.Empty() || nodes.Len() == 0) {
		return nil, refusedWith(noOutputs(), nil)
	}
	return outputs, nil
}

func (e *entry) outputNode() bool {
	return slices.ContainsFunc(e.variants, func(v variant) bool { return v.class.output })
}

// parseTargets converts partial_execution_targets into a test that works like
// Python's in operator.
func parseTargets(raw []byte) (chosen func(id string) (wanted, fault bool), err error) {
	all := func(string) (bool, bool) { return true, false }
	if raw == nil {
		return all, nil
	}
	v, err := pyjson.Parse(raw)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case pyjson.Null:
		return all, nil
	case pyjson.Array:
		return func(id string) (bool, bool) {
			return slices.ContainsFunc(v, func(item pyjson.Value) bool {
				s, ok := item.(pyjson.String)
				return ok && string(s) == id
			}), false
		}, nil
	case *pyjson.Object:
		return func(id string) (bool, bool) { return v.Has(id), false }, nil
	case pyjson.String:
		return func(id string) (bool, bool) { return strings.Contains(string(v), id), false }, nil
	}
	return func(string) (bool, bool) { return false, true }, nil
}

// refuseOddNode answers a node that is not an object, for versions that get as far
// as reading its class_type.
func refuseOddNode(id string, v pyjson.Value) *Verdict {
	lacksType := false
	switch v := v.(type) {
	case pyjson.String:
		lacksType = !strings.Contains(string(v), "class_type")
	case pyjson.Array:
		lacksType = !slices.ContainsFunc(v, func(item pyjson.Value) bool { return python.Equal(item, pyjson.String("class_type")) })
	}
	if !lacksType {
		return refused(internalError(), nil, nil)
	}
	return refuseMissingType(id, nil, behaviour{})
}

func refuseMissingType(id string, node *pyjson.Object, b behaviour) *Verdict {
	if !b.missingType {
		return refusedWith(problem("invalid_prompt",
			"Cannot execute because a node is missing the class_type property.", "Node ID '#"+id+"'", nil), nil)
	}
	title, ok := nodeTitle(node, pyjson.Null{})
	if !ok {
		return refused(internalError(), nil, nil)
	}
	shown := "ID #" + id
	if python.Bool(title) {
		shown = python.Str(title)
	}
	return refusedWith(problem("missing_node_type",
		"Node '"+shown+"' has no class_type. The workflow may be corrupted or a custom node is missing.", "Node ID '#"+id+"'",
		dict("node_id", pyjson.String(id), "class_type", pyjson.Null{}, "node_title", title)), nil)
}

func refuseUnknownType(id string, node *pyjson.Object, classType pyjson.Value, b behaviour) *Verdict {
	if !b.missingType {
		return refusedWith(problem("invalid_prompt",
			"Cannot execute because node "+python.Str(classType)+" does not exist.", "Node ID '#"+id+"'", nil), nil)
	}
	title, ok := nodeTitle(node, classType)
	if !ok {
		return refused(internalError(), nil, nil)
	}
	return refusedWith(problem("missing_node_type",
		"Node '"+python.Str(title)+"' not found. The custom node may not be installed.", "Node ID '#"+id+"'",
		dict("node_id", pyjson.String(id), "class_type", classType, "node_title", title)), nil)
}

// nodeTitle returns node["_meta"]["title"], or otherwise if one of them is absent;
// ok is false where Python throws.
func nodeTitle(node *pyjson.Object, otherwise pyjson.Value) (title pyjson.Value, ok bool) {
	meta, present := node.Get("_meta")
	if !present {
		return otherwise, true
	}
	o, ok := meta.(*pyjson.Object)
	if !ok {
		return nil, false
	}
	if title, ok := o.Get("title"); ok {
		return title, true
	}
	return otherwise, true
}

// acceptUnchecked accepts a prompt while no instance is known. It still checks what
// can be seen from the graph alone: a link to a missing node is bad for every class
// that runs.
func acceptUnchecked(g *Graph) *Verdict {
	for id := range g.nodes().All() {
		for _, v := range g.inputs(id).All() {
			from, ok := linkTarget(v)
			if !ok || g.nodes().Has(from) {
				continue
			}
			reason := duringValidation(keyError(pyjson.String(from)))
			nodeErrors := dict(id, dict("errors", pyjson.Array{reason}, "dependent_outputs", pyjson.Array{},
				"class_type", pyjson.String(g.classType(id))))
			return refusedWith(failedOutputs([]failedOutput{{id, pyjson.Array{reason}}}), nodeErrors)
		}
	}
	return accept(g, nil, nil, repairs(g), &pyjson.Object{})
}

func accept(g *Graph, outputs, unsure []string, edits []Edit, nodeErrors *pyjson.Object) *Verdict {
	changed, err := g.Splice(edits)
	if err != nil {
		// Not reached: the edits come from the same graph.
		return refused(internalError(), nil, nil)
	}
	return &Verdict{Graph: changed, Outputs: outputs, Unsure: unsure, NodeErrors: nodeErrors}
}

// duringValidation returns the error of an output whose validation threw.
func duringValidation(fault *python.Exception) *pyjson.Object {
	return problem("exception_during_validation", "Exception when validating node", fault.Text,
		dict("exception_type", pyjson.String(fault.Type), "traceback", pyjson.Array{}))
}

// failedOutputs returns the top-level error if no output is valid: one line for
// each error of an output node itself.
func failedOutputs(failed []failedOutput) *pyjson.Object {
	var lines []string
	for _, output := range failed {
		for _, reason := range output.errors {
			o, _ := reason.(*pyjson.Object)
			lines = append(lines, o.String("message")+": "+o.String("details"))
		}
	}
	return problem("prompt_outputs_failed_validation", "Prompt outputs failed validation", strings.Join(lines, "\n"), nil)
}
