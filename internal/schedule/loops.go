package schedule

import (
	"math"
	"slices"
	"strings"
)

// maxOpen bounds how many loops around a node are counted.
const maxOpen = 8

// loop is a loop around a node: the nodes between a StartLoop and its EndLoop run again and again.
type loop struct {
	start *node
	// depth is the number of loops around it, and times how often it runs in all.
	depth int
	times float64
}

// repeat notes for each node how often it runs. The nodes are in order: each comes after those that
// it reads.
func repeat(nodes map[string]*node, order []*node) {
	around := map[*node][]*loop{}
	for _, n := range order {
		var open []*loop
		for _, l := range n.links {
			for _, o := range around[nodes[l.source]] {
				if len(open) < maxOpen && !slices.Contains(open, o) {
					open = append(open, o)
				}
			}
		}
		slices.SortStableFunc(open, func(a, b *loop) int { return a.depth - b.depth })
		n.times = 1
		if len(open) > 0 {
			n.times = open[len(open)-1].times
		}
		switch {
		case n.class == "StartLoop" && len(open) < maxOpen:
			all := min(n.times*iterations(nodes, n), maxWork)
			open = append(open, &loop{start: n, depth: len(open), times: all})
		case n.class == "EndLoop" && len(open) > 0:
			open = open[:len(open)-1]
		}
		around[n] = open
		steps := n.inputs.Has("steps") || plan(nodes, n)
		for _, o := range open {
			o.start.samples = o.start.samples || steps
			o.start.inside = o.times
		}
	}
}

// plan reports whether a node reads a schedule of steps, which it then takes as often as it runs.
func plan(nodes map[string]*node, n *node) (found bool) {
	for _, l := range n.links {
		if source := nodes[l.source]; source.inputs.Has("steps") && strings.Contains(source.class, "Scheduler") {
			source.times, found = max(source.times, n.times), true
		}
	}
	return found
}

// iterations returns how often a loop runs what is in it; 1 if the graph does not say, as for a loop
// over a list.
func iterations(nodes map[string]*node, n *node) float64 {
	if n.inputs.String("mode") != "For" {
		return max(number(nodes, n.inputs, "mode.num_iterations"), 1)
	}
	first, end := number(nodes, n.inputs, "mode.start_iteration_index"), number(nodes, n.inputs, "mode.max_iteration")
	return max(math.Ceil((end-first)/max(number(nodes, n.inputs, "mode.step"), 1)), 1)
}
