package catalog

import (
	"maps"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// boundary says that a class begins or ends a loop of the graph. An instance does not
// tell; ComfyUI's own classes are known by their names.
type boundary int

const (
	noBoundary boundary = iota
	startsLoop
	endsLoop
	// maybeBoundary is a class of a custom node pack that has what a boundary needs.
	maybeBoundary
)

// boundaryOf reads from a description whether a class is a boundary. All boundaries
// ask for the list of what is to run, since they change it.
func boundaryOf(c *class, hidden *pyjson.Object) boundary {
	switch {
	case c.module == "comfy_extras.nodes_loop" && c.name == "StartLoop":
		return startsLoop
	case c.module == "comfy_extras.nodes_loop" && c.name == "EndLoop":
		return endsLoop
	case c.core || !c.v3:
		return noBoundary
	}
	for _, v := range hidden.All() {
		if list, _ := v.(pyjson.Array); len(list) > 0 && list[0] == pyjson.Value(pyjson.String("EXECUTION_LIST")) {
			return maybeBoundary
		}
	}
	return noBoundary
}

// maxLoopSteps bounds the work of pairing the boundaries of one graph, which grows
// with the square of its size. Larger graphs are left to the instance.
const maxLoopSteps = 1 << 20

// checkLoops checks that each loop has a start and an end, and that nothing leaves it on
// another way, as ComfyUI does since it has loops. Call it after all outputs were
// checked.
func (v *validator) checkLoops(outputs []string) *loopError {
	starts, ends := set{}, set{}
	for id := range v.graph.nodes().All() {
		form := v.form(id)
		if form == nil {
			continue
		}
		switch form.boundary {
		case startsLoop:
			starts[id] = true
		case endsLoop:
			ends[id] = true
		case maybeBoundary:
			v.unsure = append(v.unsure, id+": loop_boundary")
			return nil
		case noBoundary:
		}
	}
	if len(starts)+len(ends) == 0 || v.cyclic {
		return nil
	}
	l := newLoops(v.graph, v.order, outputs, starts, ends)
	wrong := l.pair()
	if l.steps > maxLoopSteps {
		v.unsure = append(v.unsure, starts.with(ends).sorted()[0]+": loop_boundary")
		return nil
	}
	return wrong
}

// set is a set of nodes.
type set map[string]bool

func (s set) sorted() []string { return slices.Sorted(maps.Keys(s)) }

// with returns the union.
func (s set) with(others ...set) set {
	all := maps.Clone(s)
	for _, other := range others {
		maps.Copy(all, other)
	}
	return all
}

// edges are the neighbours of each node in one direction.
type edges map[string][]string

// loops pairs the boundaries of a graph.
type loops struct {
	graph            *Graph
	outputs          []string
	starts, ends     set
	parents, kids    edges
	steps            int
	descendants      map[string]set // the starts that a start leads to
	inner            map[string]set // the ends before an end that are nearest to it
	unpaired, closed set            // starts without an end, and ends without a start
}

// newLoops prepares the part of a graph that ComfyUI looks at: what was validated, what
// reads the outputs, and what that needs.
func newLoops(g *Graph, validated, outputs []string, starts, ends set) *loops {
	l := &loops{graph: g, outputs: outputs}
	parents, kids := l.links(func(string) bool { return true })
	nodes := set{}
	for _, id := range validated {
		nodes[id] = true
	}
	after, _ := l.walk(outputs, kids, starts)
	var late []string
	for id := range after {
		if starts[id] && !nodes[id] {
			delete(after, id)
		} else if ends[id] {
			late = append(late, id)
		}
	}
	before, _ := l.walk(late, parents, starts)
	nodes = nodes.with(after, before)
	l.parents, l.kids = l.links(func(id string) bool { return nodes[id] })
	outside := func(id string, _ bool) bool { return !nodes[id] }
	l.starts, l.ends = maps.Clone(starts), maps.Clone(ends)
	maps.DeleteFunc(l.starts, outside)
	maps.DeleteFunc(l.ends, outside)
	return l
}

// links returns who reads whom among some of the nodes.
func (l *loops) links(in func(string) bool) (parents, kids edges) {
	parents, kids = edges{}, edges{}
	nodes := l.graph.nodes()
	for id := range nodes.All() {
		if !in(id) {
			continue
		}
		for _, value := range l.graph.inputs(id).All() {
			if from, ok := linkTarget(value); ok && nodes.Has(from) && in(from) {
				parents[id] = append(parents[id], from)
				kids[from] = append(kids[from], id)
			}
		}
	}
	return parents, kids
}

// walk follows edges from some nodes, which are found too, and not beyond those in stop.
func (l *loops) walk(from []string, along edges, stop set) (found, stops set) {
	found, stops = set{}, set{}
	todo := slices.Clone(from)
	for len(todo) > 0 && l.steps <= maxLoopSteps {
		id := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if l.steps++; found[id] {
			continue
		}
		found[id] = true
		if stop[id] {
			stops[id] = true
		} else {
			todo = append(todo, along[id]...)
		}
	}
	return found, stops
}

// pair pairs each end with the nearest start, the innermost first, and returns what is
// wrong.
func (l *loops) pair() *loopError {
	l.order()
	l.unpaired, l.closed = maps.Clone(l.starts), maps.Clone(l.ends)
	type pair struct{ start, end string }
	var pairs []pair
	for len(l.closed) > 0 && l.steps <= maxLoopSteps {
		end, ok := l.innermost()
		if !ok {
			return l.wrong("loop_end_cycle", "End Loops depend on each other",
				"End Loops depend on each other, so none of them can be closed first: "+names(l.closed), l.closed)
		}
		start, wrong := l.startOf(end)
		if wrong != nil {
			return wrong
		}
		pairs = append(pairs, pair{start, end})
		delete(l.unpaired, start)
		delete(l.closed, end)
		if wrong := l.escape(start, end); wrong != nil {
			return wrong
		}
	}
	if len(l.unpaired) > 0 {
		return l.wrong("loop_start_without_end", "Start Loop has no End Loop",
			"Start Loops without End Loops: "+names(l.unpaired), l.unpaired)
	}
	for _, p := range pairs {
		if wrong := l.accumulates(p.start, p.end); wrong != nil {
			return wrong
		}
	}
	return nil
}

// order finds which starts come after which, and which ends before which.
func (l *loops) order() {
	next, inner := edges{}, map[string]set{}
	for start := range l.starts {
		_, stops := l.walk(l.kids[start], l.kids, l.starts)
		next[start] = stops.sorted()
	}
	l.descendants = map[string]set{}
	for start := range l.starts {
		l.descendants[start], _ = l.walk(next[start], next, nil)
	}
	for end := range l.ends {
		_, inner[end] = l.walk(l.parents[end], l.parents, l.ends)
	}
	l.inner = inner
}

// innermost returns the first end that no other one is before.
func (l *loops) innermost() (end string, ok bool) {
	l.steps += len(l.closed)
	for _, id := range l.closed.sorted() {
		free := true
		for before := range l.inner[id] {
			l.steps++
			free = free && !l.closed[before]
		}
		if l.steps++; free {
			return id, true
		}
	}
	return "", false
}

// startOf returns the start that an end belongs to.
func (l *loops) startOf(end string) (string, *loopError) {
	_, candidates := l.walk(l.parents[end], l.parents, l.unpaired)
	if len(candidates) == 0 {
		return "", l.wrong("loop_end_without_start", "End Loop has no Start Loop",
			"End Loop "+end+" has no available Start Loop", set{end: true})
	}
	var closest []string
	for one := range candidates {
		behind := true
		for other := range candidates {
			l.steps++
			behind = behind && (other == one || l.descendants[other][one])
		}
		if behind {
			closest = append(closest, one)
		}
	}
	if len(closest) != 1 {
		return "", l.wrong("ambiguous_loop_nesting", "End Loop has ambiguous Start Loops",
			"End Loop "+end+" can close multiple unrelated Start Loops: "+names(candidates), candidates.with(set{end: true}))
	}
	return closest[0], nil
}

// escape says what leaves a loop without passing through its end.
func (l *loops) escape(start, end string) *loopError {
	stop := l.closed.with(set{end: true})
	for _, id := range l.outputs {
		if len(l.kids[id]) == 0 {
			stop[id] = true
		}
	}
	l.steps += len(stop)
	_, escapes := l.walk(l.kids[start], l.kids, stop)
	delete(escapes, end)
	if len(escapes) == 0 {
		return nil
	}
	return l.wrong("loop_escape", "Loop body is not closed",
		"Start Loop "+start+" reaches "+names(escapes)+" without passing through End Loop "+end,
		escapes.with(set{start: true, end: true}))
}

// accumulates says that a loop decides about its own result.
func (l *loops) accumulates(start, end string) *loopError {
	value, _ := l.graph.inputs(end).Get("accumulate")
	source, ok := linkTarget(value)
	if !ok {
		return nil
	}
	body, _ := l.walk(l.kids[start], l.kids, set{end: true})
	if source != start && (source == end || !body[source]) {
		return nil
	}
	return l.wrong("loop_accumulate_from_body", "End Loop accumulate depends on its loop body",
		"End Loop "+end+" accumulate is driven by loop node "+source+" under Start Loop "+start,
		set{start: true, end: true, source: true})
}

// wrong returns an error of some nodes.
func (l *loops) wrong(kind, message, details string, nodes set) *loopError {
	e := &loopError{nodes: nodes.sorted()}
	reached, _ := l.walk(e.nodes, l.kids, nil)
	for _, id := range l.outputs {
		if reached[id] {
			e.outputs = append(e.outputs, id)
		}
	}
	slices.Sort(e.outputs)
	e.problem = problem("custom_validation_failed", message, details, dict(
		"input_name", pyjson.String("loop boundary"), "loop_error_type", pyjson.String(kind),
		"node_ids", pyjson.Strings(e.nodes), "output_ids", pyjson.Strings(e.outputs)))
	return e
}

func names(s set) string { return strings.Join(s.sorted(), ", ") }
