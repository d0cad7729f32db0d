package workflow

import (
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// maxHops bounds how far a link is followed.
const maxHops = 32

// origin returns where the literal is that an input has, or that comes to it through
// primitives, switches and reroutes.
func (g *Graph) origin(s Slot, fits func(pyjson.Value) bool) (Slot, bool) {
	for range maxHops {
		if fits(g.literal(s.Node, s.Input)) {
			return s, true
		}
		from := g.linked(s.Node, s.Input)
		if from == "" {
			break
		}
		s = Slot{from, g.carries(from, s.Input, fits)}
	}
	return Slot{}, false
}

// carries returns the input of a node that it hands on as a value that another calls name.
func (g *Graph) carries(id, name string, fits func(pyjson.Value) bool) string {
	if next := g.branch(id); next != "" {
		return next
	}
	names := []string{name, "value", "int", "float", "number", "string", "text", "", "any", "anything", "input"}
	if strings.Contains(name, "seed") || name == "value" {
		names = append(names, "seed", "noise_seed")
	}
	at := slices.IndexFunc(names, func(name string) bool { return fits(g.literal(id, name)) || g.linked(id, name) != "" })
	if at < 0 {
		return ""
	}
	return names[at]
}

// branch returns the input that a switch hands on, "" if a node is no switch. What comes
// from further away than a node with the value counts as off.
func (g *Graph) branch(id string) string {
	for _, names := range [][3]string{{"switch", "on_true", "on_false"}, {"boolean", "on_true", "on_false"}, {"cond", "tt_value", "ff_value"}} {
		if !g.inputs(id).Has(names[1]) && !g.inputs(id).Has(names[2]) {
			continue
		}
		on := g.literal(id, names[0])
		if from := g.linked(id, names[0]); from != "" {
			on = g.literal(from, "value")
		}
		if on == pyjson.Bool(true) {
			return names[1]
		}
		return names[2]
	}
	for _, input := range []string{"any_01", "any_02", "any_03", "any_04"} {
		if g.linked(id, input) != "" {
			return input
		}
	}
	return ""
}

// upstream follows the inputs of some names, also through switches, to the nearest node
// that is wanted; "" if there is none. Beyond the first node, it follows further names too.
func (g *Graph) upstream(id string, names []string, wanted func(id string) bool, further ...string) string {
	seen, row := map[string]bool{id: true}, []string{id}
	for len(row) > 0 {
		var next []string
		for _, id := range row {
			inputs := names
			if branch := g.branch(id); branch != "" {
				inputs = []string{branch}
			}
			for _, input := range inputs {
				from := g.linked(id, input)
				if from == "" || seen[from] {
					continue
				}
				if wanted(from) {
					return from
				}
				seen[from] = true
				next = append(next, from)
			}
		}
		row, names = next, append(slices.Clone(names), further...)
	}
	return ""
}

// used reports whether a link begins at a node.
func (g *Graph) used(node string) bool {
	return slices.ContainsFunc(g.ids, func(id string) bool {
		for input := range g.inputs(id).All() {
			if g.linked(id, input) == node {
				return true
			}
		}
		return false
	})
}
