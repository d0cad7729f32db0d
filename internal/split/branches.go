package split

import (
	"math/bits"
	"slices"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/resultcache"
)

const (
	// MaxOutputs bounds the outputs of a graph whose outputs are made apart.
	MaxOutputs = 60
	// maxNodes and maxLinks bound its nodes and the links between them: to find what had better be made
	// together takes as long as there are nodes, times outputs, times instances.
	maxNodes = 1000
	maxLinks = 10_000
)

// Outputs is a set of a graph's outputs, by their places among those that are wanted.
type Outputs uint64

// Branches is a graph whose outputs several instances can make, each some of them.
type Branches struct {
	graph   []byte
	nodes   *pyjson.Object
	outputs []string
	// needed says which outputs need a node, for all nodes that any needs.
	needed map[string]Outputs
	// units are the outputs that one instance must make together, in the order of the graph.
	units []Outputs
}

// FindBranches looks which of the wanted outputs of a graph in ComfyUI's API format can be made
// apart; false if none can. Core is as for [Find].
func FindBranches(graph []byte, outputs []string, core func(class string) bool) (Branches, bool) {
	v, err := pyjson.Parse(graph)
	nodes, ok := v.(*pyjson.Object)
	if err != nil || !ok || len(outputs) < 2 || len(outputs) > MaxOutputs || nodes.Len() > maxNodes || links(nodes) > maxLinks {
		return Branches{}, false
	}
	b := Branches{graph: graph, nodes: nodes, outputs: outputs, needed: map[string]Outputs{}}
	for n, id := range outputs {
		if !saves(nodes.Object(id).String("class_type")) || !b.visit(id, 1<<n) {
			return Branches{}, false
		}
	}
	for id := range b.needed {
		if !core(nodes.Object(id).String("class_type")) {
			return Branches{}, false
		}
	}
	b.units = b.join()
	return b, len(b.units) > 1
}

// links counts the links of a graph.
func links(nodes *pyjson.Object) (n int) {
	for id := range nodes.All() {
		for _, v := range nodes.Object(id).Object("inputs").All() {
			if _, ok := sourceOf(v); ok {
				n++
			}
		}
	}
	return n
}

// saves reports whether nodes of a class put out their inputs and do nothing else: they write files
// whose names the hub gives, or show a text.
func saves(class string) bool {
	switch class {
	case "SaveImage", "PreviewImage", "MaskPreview", "SaveAnimatedWEBP", "SaveAnimatedPNG", "SaveSVGNode", "SaveLatent",
		"SaveWEBM", "SaveVideo", "SaveAudio", "SaveAudioMP3", "SaveAudioOpus", "PreviewAudio", "PreviewAny":
		return true
	}
	return false
}

// visit notes that an output needs a node and all that this one needs; false if the graph is not
// sound.
func (b Branches) visit(id string, output Outputs) bool {
	for todo := []string{id}; len(todo) > 0; {
		id, todo = todo[len(todo)-1], todo[:len(todo)-1]
		if b.needed[id]&output != 0 {
			continue
		}
		b.needed[id] |= output
		inputs := b.nodes.Object(id).Object("inputs")
		if inputs == nil {
			return false
		}
		for _, v := range inputs.All() {
			if source, ok := sourceOf(v); ok {
				todo = append(todo, source)
			}
		}
	}
	return true
}

// sourceOf returns the node that an input is linked to.
func sourceOf(v pyjson.Value) (source string, ok bool) {
	list, _ := v.(pyjson.Array)
	if len(list) != 2 {
		return "", false
	}
	id, isText := list[0].(pyjson.String)
	switch list[1].(type) {
	case pyjson.Number, pyjson.Bool: // a bool is an int in Python
		return string(id), isText
	}
	return "", false
}

// join returns the outputs that stay together because a node which they share must run once: it may
// give something else the second time, or it puts something out.
func (b Branches) join() []Outputs {
	units := make([]Outputs, len(b.outputs))
	for n := range units {
		units[n] = 1 << n
	}
	for id, by := range b.needed {
		node := b.nodes.Object(id)
		class := node.String("class_type")
		if by.count() == 1 || resultcache.Repeatable(class, node.Object("inputs")) && !saves(class) {
			continue
		}
		apart := units[:0:0]
		for _, unit := range units {
			if unit&by != 0 {
				by |= unit
			} else {
				apart = append(apart, unit)
			}
		}
		units = append(apart, by)
	}
	slices.SortFunc(units, func(x, y Outputs) int { return x.first() - y.first() })
	return units
}

// first is the place of the first output, and count how many there are.
func (o Outputs) first() int { return bits.TrailingZeros64(uint64(o)) }
func (o Outputs) count() int { return bits.OnesCount64(uint64(o)) }

// all is the set of all outputs.
func (b Branches) all() Outputs { return 1<<len(b.outputs) - 1 }

// Rest returns the outputs that are in none of some sets.
func (b Branches) Rest(sets []Outputs) Outputs {
	rest := b.all()
	for _, set := range sets {
		rest &^= set
	}
	return rest
}

// Classes are those of the nodes that are needed: they must be ComfyUI's own wherever a part is made.
func (b Branches) Classes() (classes []string) {
	for id := range b.needed {
		classes = append(classes, b.nodes.Object(id).String("class_type"))
	}
	slices.Sort(classes)
	return slices.Compact(classes)
}

// Parts returns the part that makes each set of outputs; none if the sets are not all outputs once,
// or take apart what must stay together.
func (b Branches) Parts(sets []Outputs) (parts []Part) {
	var seen Outputs
	for _, set := range sets {
		torn := slices.ContainsFunc(b.units, func(unit Outputs) bool { return unit&set != 0 && unit&^set != 0 })
		if set == 0 || set&seen != 0 || torn {
			return nil
		}
		seen |= set
		parts = append(parts, Part{Graph: b.graph, Outputs: b.names(set)})
	}
	if seen != b.all() {
		return nil
	}
	return parts
}

// names are the ids of a set of outputs.
func (b Branches) names(set Outputs) (ids []string) {
	for n, id := range b.outputs {
		if set&(1<<n) != 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// Only returns a graph without the nodes that some of its outputs do not need.
func Only(graph []byte, outputs []string) ([]byte, error) {
	v, err := pyjson.Parse(graph)
	if err != nil {
		return nil, err
	}
	nodes, _ := v.(*pyjson.Object)
	b := Branches{nodes: nodes, needed: map[string]Outputs{}}
	for _, id := range outputs {
		b.visit(id, 1)
	}
	left := &pyjson.Object{}
	for id, node := range nodes.All() {
		if b.needed[id] != 0 {
			left.Set(id, node)
		}
	}
	return pyjson.Marshal(left), nil
}
