package catalog

import (
	"fmt"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Graph is a prompt: node ids and their nodes, with their original bytes. It is
// immutable. It can be any JSON value until [Catalog.Validate] has accepted it.
type Graph struct {
	raw  []byte
	root pyjson.Value
}

// ParseGraph parses a graph from its raw JSON, which must not change afterwards.
func ParseGraph(raw []byte) (*Graph, error) {
	v, err := pyjson.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("catalog: graph: %w", err)
	}
	return &Graph{raw: raw, root: v}, nil
}

// Bytes returns the raw JSON.
func (g *Graph) Bytes() []byte { return g.raw }

// Root returns the parsed graph, which must not be changed.
func (g *Graph) Root() pyjson.Value { return g.root }

// Splice returns the graph with some literals replaced, see the function [Splice].
func (g *Graph) Splice(edits []Edit) (*Graph, error) {
	if len(edits) == 0 {
		return g, nil
	}
	raw, err := Splice(g.raw, edits)
	if err != nil {
		return nil, err
	}
	return ParseGraph(raw)
}

// nodes returns the members of the graph; nil if it is not an object.
func (g *Graph) nodes() *pyjson.Object {
	if g == nil {
		return nil
	}
	o, _ := g.root.(*pyjson.Object)
	return o
}

// classType returns the class of a node; "" if it has none or it is not a string.
func (g *Graph) classType(id string) string { return g.nodes().Object(id).String("class_type") }

// inputs returns a node's inputs; nil if it has none.
func (g *Graph) inputs(id string) *pyjson.Object { return g.nodes().Object(id).Object("inputs") }

// linkTarget returns the node that an input's value links to, by the rule of
// ComfyUI's executor: a link is an array of a string and a number. Validation
// treats any array as a link.
func linkTarget(v pyjson.Value) (id string, ok bool) {
	list, _ := v.(pyjson.Array)
	if len(list) != 2 {
		return "", false
	}
	name, ok := list[0].(pyjson.String)
	if !ok {
		return "", false
	}
	switch list[1].(type) {
	case pyjson.Number, pyjson.Bool: // a bool is an int in Python
		return string(name), true
	}
	return "", false
}

// upstream returns the nodes that running the outputs can touch, including the
// outputs. It also follows links in inputs that no class declares, because the
// executor does. Ids without a node are skipped.
func (g *Graph) upstream(outputs []string) map[string]bool {
	seen := map[string]bool{}
	todo := append([]string(nil), outputs...)
	for len(todo) > 0 {
		id := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[id] || !g.nodes().Has(id) {
			continue
		}
		seen[id] = true
		for _, v := range g.inputs(id).All() {
			if from, ok := linkTarget(v); ok {
				todo = append(todo, from)
			}
		}
	}
	return seen
}
