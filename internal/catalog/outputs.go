package catalog

import (
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// validateOutputs checks each output with everything upstream of it, and accepts
// the prompt if one of them is valid.
func (c *Catalog) validateOutputs(p Prompt, b behaviour, outputs []string) *Verdict {
	v := &validator{
		catalog: c, graph: p.Graph, behaviour: b, known: p.Known, ownFiles: p.OwnFiles, makes: p.Makes,
		results: map[string]*result{}, onPath: map[string]int{}, forms: map[string]*class{},
	}
	lost := danglingLinks(p.Graph)
	var good []string
	var failed []failedOutput
	nodeErrors := &pyjson.Object{}
	for _, id := range outputs {
		r, fault := v.check(id)
		if fault == nil && r.valid {
			fault = lost[id]
		}
		if fault != nil {
			r = v.fail(id, pyjson.Array{duringValidation(fault)})
		}
		if r.valid {
			good = append(good, id)
			continue
		}
		failed = append(failed, failedOutput{id, r.errors})
		v.report(id, nodeErrors)
	}
	if wrong := v.checkLoops(outputs); wrong != nil {
		if len(wrong.outputs) == 0 { // ComfyUI takes the first of them
			return refused(internalError(), nil, nil)
		}
		failed = wrong.report(v, failed, nodeErrors)
		good = slices.DeleteFunc(good, func(id string) bool { return slices.Contains(wrong.outputs, id) })
	}
	if len(good) == 0 {
		verdict := refusedWith(failedOutputs(failed), nodeErrors)
		verdict.Unlisted = v.unlisted()
		return verdict
	}
	edits := append(v.edits, repairs(p.Graph)...)
	edits = append(edits, c.titles(p.Graph)...)
	verdict := accept(p.Graph, good, v.unsure, edits, nodeErrors)
	verdict.Unlisted = v.unlisted()
	verdict.Doubtful = v.doubtful()
	return verdict
}

// doubtful reports whether an instance may refuse what passed here: any class
// except ComfyUI's own may have a validate function, and a replaced class is
// checked as its replacement.
func (v *validator) doubtful() bool {
	return len(v.unsure) > 0 || slices.ContainsFunc(v.order, func(id string) bool {
		form := v.form(id)
		return form == nil || !form.core
	})
}

// unlisted returns the classes of the nodes with values that are in no list.
func (v *validator) unlisted() []string {
	slices.Sort(v.strays)
	return slices.Compact(v.strays)
}

// maxReported bounds the nodes in node_errors and the outputs that each of them
// lists: for a graph designed to do so, ComfyUI's answer grows with the square of
// its size.
const maxReported = 1000

// report adds the nodes with errors of their own to node_errors. Nodes that fail
// because of an upstream node have none and are not listed.
func (v *validator) report(output string, nodeErrors *pyjson.Object) {
	reported := 0
	for _, id := range v.order {
		r := v.results[id]
		if r.valid || len(r.errors) == 0 {
			continue
		}
		if reported++; reported > maxReported {
			return
		}
		entry := nodeErrors.Object(id)
		if entry == nil {
			entry = dict("errors", r.errors, "dependent_outputs", pyjson.Array{}, "class_type", v.classType(id))
			nodeErrors.Set(id, entry)
		}
		if dependents := entry.Array("dependent_outputs"); len(dependents) < maxReported {
			entry.Set("dependent_outputs", append(dependents, pyjson.String(output)))
		}
	}
}

func (v *validator) classType(id string) pyjson.Value {
	name, _ := v.graph.nodes().Object(id).Get("class_type")
	return name
}

// validator checks each node of one prompt once.
type validator struct {
	catalog   *Catalog
	graph     *Graph
	behaviour behaviour
	known     func(job.FileRef) bool
	ownFiles  bool
	makes     func(Question) bool

	results map[string]*result
	order   []string // ids in the order of their results
	path    []string // nodes that are being checked
	onPath  map[string]int
	forms   map[string]*class
	edits   []Edit
	unsure  []string
	strays  []string // classes of nodes with values that are in no list
	cyclic  bool     // a node depends on itself
}

// failedOutput is an output that does not run, with its own errors.
type failedOutput struct {
	id     string
	errors pyjson.Array
}

// result is the outcome for one node. A node that is invalid but has no errors
// failed because of an upstream node.
type result struct {
	valid  bool
	errors pyjson.Array
}

func (v *validator) set(id string, r *result) *result {
	if _, known := v.results[id]; !known {
		v.order = append(v.order, id)
	}
	v.results[id] = r
	return r
}

func (v *validator) fail(id string, errors pyjson.Array) *result {
	return v.set(id, &result{errors: errors})
}

// check checks a node and everything upstream of it. The exception is what ComfyUI
// throws instead of a result; the consumer reports it.
func (v *validator) check(id string) (*result, *python.Exception) {
	if r, known := v.results[id]; known {
		return r, nil
	}
	if at, underWay := v.onPath[id]; underWay {
		return v.cycle(v.path[at:]), nil
	}
	if len(v.path) >= maxChain {
		return nil, &python.Exception{Type: "RecursionError", Text: "maximum recursion depth exceeded"}
	}
	v.onPath[id] = len(v.path)
	v.path = append(v.path, id)
	defer func() {
		v.path = v.path[:len(v.path)-1]
		delete(v.onPath, id)
	}()

	node := v.graph.nodes().Object(id)
	value, present := node.Get("inputs")
	if !present {
		return nil, keyError(pyjson.String("inputs"))
	}
	inputs, ok := value.(*pyjson.Object)
	if !ok {
		return nil, python.TypeError("argument of type '%s' is not iterable", python.TypeName(value))
	}
	n := &nodeCheck{validator: v, id: id, inputs: inputs, class: v.form(id), upstreamGood: true}
	if n.class == nil {
		// An old class that instances replace: its inputs have other names there,
		// but the nodes it links to are checked all the same.
		if fault := n.followLinks(); fault != nil {
			return nil, fault
		}
	} else if fault := n.checkInputs(); fault != nil {
		return nil, fault
	}
	r := &result{valid: n.upstreamGood && len(n.errors) == 0, errors: n.errors}
	if cyclic := v.results[id]; cyclic != nil {
		r.valid = false
		r.errors = append(slices.Clone(cyclic.errors), n.errors...)
	}
	return v.set(id, r), nil
}

// maxChain is the longest chain of links that is followed. A real server stops at a
// few hundred, at Python's recursion limit.
const maxChain = 5000

// cycle reports nodes that depend on themselves. Older servers exceed their
// recursion limit and report nothing.
func (v *validator) cycle(nodes []string) *result {
	v.cyclic = true
	if !v.behaviour.cycles {
		return &result{}
	}
	closed := append(slices.Clone(nodes), nodes[0])
	var details strings.Builder
	for i, id := range closed {
		if i > 0 {
			details.WriteString(" -> ")
		}
		details.WriteString(id + " (" + v.graph.classType(id) + ")")
	}
	for _, id := range nodes {
		v.fail(id, pyjson.Array{problem("dependency_cycle", "Dependency cycle detected", details.String(),
			dict("node_id", pyjson.String(id), "cycle_nodes", pyjson.Strings(nodes)))})
	}
	return v.results[nodes[0]]
}

// form returns the variant of its class that best fits a node; nil for a replaced
// class.
func (v *validator) form(id string) *class {
	if c, known := v.forms[id]; known {
		return c
	}
	var best *class
	if e := v.catalog.entry(v.graph.classType(id)); e != nil {
		best = e.fit(v.graph.inputs(id), v.behaviour)[0]
	}
	v.forms[id] = best
	return best
}
