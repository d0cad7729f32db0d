package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// longList is the number of options above which a refusal does not list them.
const longList = 20

// verdict is the outcome of validating a prompt.
type verdict struct {
	problem *pyjson.Object // top level error, nil if some output is good
	outputs []string       // the good ones
	errors  *pyjson.Object // node_errors
}

// outcome is the result of validating one node.
type outcome struct {
	valid   bool
	reasons pyjson.Array
}

// validator checks one prompt. It writes coerced values back into the graph.
type validator struct {
	cat   *catalogue
	files *folders
	graph *pyjson.Object
	seen  *orderedOutcomes
	path  []string // nodes being checked, for cycles
}

// orderedOutcomes keeps the order in which nodes were first checked, which is the
// order of node_errors.
type orderedOutcomes struct {
	order []string
	byID  map[string]outcome
}

func (o *orderedOutcomes) set(id string, out outcome) {
	if _, ok := o.byID[id]; !ok {
		o.order = append(o.order, id)
	}
	o.byID[id] = out
}

func problem(kind, message, details string, extra *pyjson.Object) *pyjson.Object {
	return dict("type", kind, "message", message, "details", details, "extra_info", extra)
}

// validatePrompt checks the graph as POST /prompt does. If targets is not nil, it
// limits the output nodes. The exception is what the real server answers with
// status 500.
func validatePrompt(cat *catalogue, files *folders, graph pyjson.Value, targets pyjson.Value) (verdict, *exception) {
	nodes, ok := graph.(*pyjson.Object)
	if !ok {
		if a, isArray := graph.(pyjson.Array); isArray && len(a) == 0 {
			return verdict{problem: problem("prompt_no_outputs", "Prompt has no outputs", "", dict()), errors: dict()}, nil
		}
		return verdict{}, raise("TypeError", "'%s' object is not iterable", python.TypeName(graph))
	}
	v := &validator{cat: cat, files: files, graph: nodes, seen: &orderedOutcomes{byID: map[string]outcome{}}}
	outputs, bad, exc := v.outputNodes(targets)
	if exc != nil || bad != nil {
		return verdict{problem: bad, errors: dict()}, exc
	}
	if len(outputs) == 0 {
		return verdict{problem: problem("prompt_no_outputs", "Prompt has no outputs", "", dict()), errors: dict()}, nil
	}
	return v.judge(outputs), nil
}

// outputNodes finds the output nodes and refuses unknown classes.
func (v *validator) outputNodes(targets pyjson.Value) (outputs []string, bad *pyjson.Object, exc *exception) {
	for id, node := range v.graph.All() {
		var kind pyjson.Value
		known := false
		switch n := node.(type) {
		case *pyjson.Object:
			kind, known = n.Get("class_type")
		case pyjson.String:
			known = strings.Contains(string(n), "class_type") // Python's "in" on a str
			if known {
				return nil, nil, raise("TypeError", "string indices must be integers, not 'str'")
			}
		case pyjson.Array:
		default:
			return nil, nil, raise("TypeError", "argument of type '%s' is not iterable", python.TypeName(node))
		}
		if !known {
			return nil, v.missingClass(id, node), nil
		}
		switch kind.(type) {
		case pyjson.Array, *pyjson.Object:
			return nil, nil, raise("TypeError", "unhashable type: '%s'", python.TypeName(kind))
		}
		name, _ := kind.(pyjson.String)
		cl, ok := v.cat.class(string(name))
		if !ok {
			return nil, v.unknownClass(id, node.(*pyjson.Object), kind), nil
		}
		if cl.outputNode && targeted(targets, id) {
			outputs = append(outputs, id)
		}
	}
	return outputs, nil, nil
}

// targeted reports whether partial_execution_targets lets an output run.
func targeted(targets pyjson.Value, id string) bool {
	switch t := targets.(type) {
	case nil, pyjson.Null:
		return true
	case pyjson.Array:
		return slices.ContainsFunc(t, func(v pyjson.Value) bool { return pyjson.Equal(v, pyjson.String(id)) })
	case pyjson.String:
		return strings.Contains(string(t), id)
	case *pyjson.Object:
		return t.Has(id)
	}
	return false
}

// title returns a node's name in errors: _meta.title, else its class.
func title(node pyjson.Value, kind pyjson.Value) pyjson.Value {
	o, _ := node.(*pyjson.Object)
	if t, ok := o.Object("_meta").Get("title"); ok {
		return t
	}
	if kind == nil {
		return pyjson.Null{}
	}
	return kind
}

func (v *validator) missingClass(id string, node pyjson.Value) *pyjson.Object {
	if !v.cat.feat.missingNodeType {
		return problem("invalid_prompt", "Cannot execute because a node is missing the class_type property.", fmt.Sprintf("Node ID '#%s'", id), dict())
	}
	name := title(node, nil)
	shown := python.Str(name)
	if _, none := name.(pyjson.Null); none {
		shown = "ID #" + id
	}
	return problem("missing_node_type",
		fmt.Sprintf("Node '%s' has no class_type. The workflow may be corrupted or a custom node is missing.", shown),
		fmt.Sprintf("Node ID '#%s'", id), dict("node_id", id, "class_type", nil, "node_title", name))
}

func (v *validator) unknownClass(id string, node *pyjson.Object, kind pyjson.Value) *pyjson.Object {
	if !v.cat.feat.missingNodeType {
		return problem("invalid_prompt", fmt.Sprintf("Cannot execute because node %s does not exist.", python.Str(kind)), fmt.Sprintf("Node ID '#%s'", id), dict())
	}
	name := title(node, kind)
	return problem("missing_node_type",
		fmt.Sprintf("Node '%s' not found. The custom node may not be installed.", python.Str(name)),
		fmt.Sprintf("Node ID '#%s'", id), dict("node_id", id, "class_type", kind, "node_title", name))
}

// judge validates each output together with everything upstream of it.
func (v *validator) judge(outputs []string) verdict {
	result := verdict{errors: &pyjson.Object{}}
	var lines []string
	for _, id := range outputs {
		out, exc := v.node(id)
		if exc != nil {
			v.path = nil
			out = outcome{reasons: list(problem("exception_during_validation", "Exception when validating node", exc.message,
				dict("exception_type", exc.kind, "traceback", traceback("validate_prompt", "validate_inputs"))))}
			v.seen.set(id, out)
		}
		if out.valid {
			result.outputs = append(result.outputs, id)
			continue
		}
		for _, reason := range out.reasons {
			o := reason.(*pyjson.Object)
			lines = append(lines, o.String("message")+": "+o.String("details"))
		}
		v.collect(result.errors, id)
	}
	if len(result.outputs) == 0 {
		result.problem = problem("prompt_outputs_failed_validation", "Prompt outputs failed validation", strings.Join(lines, "\n"), dict())
	}
	return result
}

// collect adds every node known to be bad so far to node_errors.
func (v *validator) collect(into *pyjson.Object, output string) {
	for _, id := range v.seen.order {
		out := v.seen.byID[id]
		if out.valid || len(out.reasons) == 0 {
			continue
		}
		entry := into.Object(id)
		if entry == nil {
			node, _ := v.graph.Get(id)
			kind, _ := node.(*pyjson.Object).Get("class_type")
			entry = dict("errors", out.reasons, "dependent_outputs", pyjson.Array{}, "class_type", kind)
			into.Set(id, entry)
		}
		entry.Set("dependent_outputs", append(entry.Array("dependent_outputs"), pyjson.String(output)))
	}
}

// node validates one node, and each node only once.
func (v *validator) node(id string) (outcome, *exception) {
	if out, ok := v.seen.byID[id]; ok {
		return out, nil
	}
	node := v.graph.Object(id)
	rawInputs, ok := node.Get("inputs")
	if !ok {
		return outcome{}, raise("KeyError", "'inputs'")
	}
	inputs, ok := rawInputs.(*pyjson.Object)
	if !ok {
		return outcome{}, raise("TypeError", "argument of type '%s' is not iterable", python.TypeName(rawInputs))
	}
	cl, _ := v.cat.class(node.String("class_type"))
	v.path = append(v.path, id)
	defer func() { v.path = v.path[:max(0, len(v.path)-1)] }()

	out := outcome{valid: true}
	received := map[string]pyjson.Value{}
	for _, in := range expandInputs(cl.inputs, inputs) {
		reason, upstreamOK, exc := v.input(cl, in, inputs, received)
		if exc != nil {
			return outcome{}, exc
		}
		if reason != nil {
			out.reasons = append(out.reasons, reason)
		}
		out.valid = out.valid && upstreamOK
	}
	if cl.validate != nil {
		reasons, exc := v.custom(cl, inputs)
		if exc != nil {
			return outcome{}, exc
		}
		out.reasons = append(out.reasons, reasons...)
	}
	if known, ok := v.seen.byID[id]; ok && !known.valid && len(known.reasons) > 0 && v.cat.feat.dependencyCycle {
		return known, nil // found to be part of a cycle in the meantime
	}
	out.valid = out.valid && len(out.reasons) == 0
	v.seen.set(id, out)
	return out, nil
}

// custom runs the class's own validation. Each input that it names and that is
// present gets the same error.
func (v *validator) custom(cl *class, inputs *pyjson.Object) (pyjson.Array, *exception) {
	message, exc := cl.validate(v.files, inputs)
	if exc != nil || message == "" {
		return nil, exc
	}
	var reasons pyjson.Array
	for _, name := range cl.validates {
		if v, ok := inputs.Get(name); ok && !isLink(v) {
			reasons = append(reasons, problem("custom_validation_failed", "Custom validation failed for node", name+" - "+message, dict("input_name", name)))
		}
	}
	return reasons, nil
}

// input validates one input. A nil reason with upstreamOK false means that the
// error is upstream and is reported there.
func (v *validator) input(cl *class, in input, inputs *pyjson.Object, received map[string]pyjson.Value) (reason *pyjson.Object, upstreamOK bool, exc *exception) {
	val, ok := inputs.Get(in.name)
	if !ok {
		if in.required {
			return problem("required_input_missing", "Required input is missing", lastPart(in.name), dict("input_name", in.name)), true, nil
		}
		return nil, true, nil
	}
	if link, ok := val.(pyjson.Array); ok {
		return v.link(cl, in, link, received)
	}
	reason, exc = v.literal(cl, in, val, inputs)
	return reason, true, exc
}

func lastPart(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

func (v *validator) link(cl *class, in input, link pyjson.Array, received map[string]pyjson.Value) (*pyjson.Object, bool, *exception) {
	if len(link) != 2 {
		return problem("bad_linked_input", "Bad linked input, must be a length-2 list of [node_id, slot_index]", in.name,
			dict("input_name", in.name, "input_config", in.config, "received_value", link)), true, nil
	}
	source, kind, exc := v.source(link)
	if exc != nil {
		return nil, false, exc
	}
	received[in.name] = kind
	if !v.cat.matches(kind, in.kind, cl.custom) {
		return problem("return_type_mismatch", "Return type mismatch between linked nodes",
			fmt.Sprintf("%s, received_type(%s) mismatch input_type(%s)", in.name, python.Str(kind), python.Str(in.kind)),
			dict("input_name", in.name, "input_config", in.config, "received_type", kind, "linked_node", link)), true, nil
	}
	if at := slices.Index(v.path, source); at >= 0 {
		v.cycle(v.path[at:])
		return nil, false, nil
	}
	depth := len(v.path)
	out, exc := v.node(source)
	if exc != nil {
		v.path = v.path[:depth]
		v.seen.set(source, outcome{reasons: list(problem("exception_during_inner_validation", "Exception when validating inner node", exc.message,
			dict("input_name", in.name, "input_config", in.config, "exception_message", exc.message, "exception_type", exc.kind,
				"traceback", traceback("validate_inputs", "validate_inputs"), "linked_node", link)))})
		return nil, false, nil
	}
	return nil, out.valid, nil
}

// source looks up the node that a link points at, and the type of its slot.
func (v *validator) source(link pyjson.Array) (string, pyjson.Value, *exception) {
	id, ok := link[0].(pyjson.String)
	node := v.graph.Object(string(id))
	if !ok || node == nil {
		switch link[0].(type) {
		case pyjson.Array, *pyjson.Object:
			return "", nil, raise("TypeError", "unhashable type: '%s'", python.TypeName(link[0]))
		}
		return "", nil, raise("KeyError", "%s", python.Repr(link[0]))
	}
	cl, _ := v.cat.class(node.String("class_type"))
	number, isNumber := python.Number(link[1])
	slot, isInt := number.Int64()
	if !isNumber || !isInt {
		return "", nil, raise("TypeError", "tuple indices must be integers or slices, not %s", python.TypeName(link[1]))
	}
	if slot < 0 {
		slot += int64(len(cl.outputs)) // Python counts from the end
	}
	if slot < 0 || slot >= int64(len(cl.outputs)) {
		if v.cat.feat.missingNodeType && cl.info.Has("output_matchtypes") {
			return "", nil, raise("IndexError", "list index out of range")
		}
		return "", nil, raise("IndexError", "tuple index out of range")
	}
	return string(id), cl.outputs[slot], nil
}

// cycle marks the nodes of a cycle as invalid. Older versions exceeded Python's
// recursion limit instead, which leaves no reason behind.
func (v *validator) cycle(nodes []string) {
	if !v.cat.feat.dependencyCycle {
		return
	}
	var steps []string
	for _, id := range append(slices.Clone(nodes), nodes[0]) {
		steps = append(steps, fmt.Sprintf("%s (%s)", id, v.graph.Object(id).String("class_type")))
	}
	for _, id := range nodes {
		v.seen.set(id, outcome{reasons: list(problem("dependency_cycle", "Dependency cycle detected", strings.Join(steps, " -> "),
			dict("node_id", id, "cycle_nodes", nodes)))})
	}
}

// traceback stands for the frames that Python would list.
func traceback(functions ...string) pyjson.Array {
	lines := make(pyjson.Array, len(functions))
	for i, name := range functions {
		lines[i] = pyjson.String(fmt.Sprintf("  File \"/comfyui/execution.py\", line 1, in %s\n    ...\n", name))
	}
	return lines
}
