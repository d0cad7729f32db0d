package catalog

import (
	"slices"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// loopError is what is wrong with the loops of a graph.
type loopError struct {
	problem *pyjson.Object
	// nodes have the error, and outputs depend on them. Both are sorted.
	nodes, outputs []string
}

// maxLoopAnswer bounds what an answer repeats of one error, in bytes: the error lists the
// nodes that it is told of.
const maxLoopAnswer = 1 << 20

// report adds the error to node_errors, and to the outputs that do not run. An output that
// was refused before has it twice there, since ComfyUI adds it to the same list.
func (e *loopError) report(v *validator, failed []failedOutput, nodeErrors *pyjson.Object) []failedOutput {
	shown := max(1, maxLoopAnswer/len(pyjson.Marshal(e.problem)))
	for _, id := range e.nodes[:min(len(e.nodes), shown)] {
		entry := nodeErrors.Object(id)
		if entry == nil {
			entry = dict("errors", pyjson.Array{}, "dependent_outputs", pyjson.Array{}, "class_type", v.classType(id))
			nodeErrors.Set(id, entry)
		} else if i := slices.IndexFunc(failed, func(f failedOutput) bool { return f.id == id }); i >= 0 {
			failed[i].errors = append(slices.Clone(failed[i].errors), e.problem)
		}
		entry.Set("errors", append(slices.Clone(entry.Array("errors")), e.problem))
		entry.Set("dependent_outputs", e.dependents(entry))
	}
	return append(failed, failedOutput{e.outputs[0], pyjson.Array{e.problem}})
}

// dependents are the outputs that depend on a node, with those of the error.
func (e *loopError) dependents(entry *pyjson.Object) pyjson.Array {
	all := slices.Clone(e.outputs)
	for _, v := range entry.Array("dependent_outputs") {
		if id, ok := v.(pyjson.String); ok {
			all = append(all, string(id))
		}
	}
	slices.Sort(all)
	return pyjson.Strings(slices.Compact(all))
}
