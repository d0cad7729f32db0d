// Package workflow turns a workflow file into a command: which inputs of which
// nodes a message sets, which values it may set, and the resulting graph.
//
// A workflow is in ComfyUI's API format: an object of nodes by id, each with a
// class_type and inputs; an input is a literal or a link [node, output]. What the
// bridge does not set stays as in the file, including 64-bit seeds and the order of
// keys.
package workflow

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// ErrNotAPI means that a file holds a workflow as saved by the web UI.
var ErrNotAPI = errors.New("this is a workflow of the web UI; export it with \"Export (API)\"")

// Graph is a workflow.
type Graph struct {
	nodes *pyjson.Object
	ids   []string // small numbers first
}

// ParseGraph reads a workflow in API format.
func ParseGraph(data []byte) (*Graph, error) {
	value, err := pyjson.Parse(data)
	if err != nil {
		return nil, err
	}
	nodes, ok := value.(*pyjson.Object)
	switch {
	case !ok:
		return nil, errors.New("a workflow must be a JSON object of nodes")
	case nodes.Array("nodes") != nil:
		return nil, ErrNotAPI
	case nodes.Len() == 0:
		return nil, errors.New("the workflow has no nodes")
	}
	g := &Graph{nodes: nodes, ids: nodes.Keys()}
	for _, id := range g.ids {
		if g.Class(id) == "" {
			return nil, fmt.Errorf("node %s has no class_type", id)
		}
	}
	slices.SortStableFunc(g.ids, func(a, b string) int { return slices.Compare(idOrder(a), idOrder(b)) })
	return g, nil
}

// idOrder returns what ids are sorted by: their numbers, such as 57 and 3 of "57:3", the
// node 3 of a subgraph. Those without numbers stay in the order of the file, at the end.
func idOrder(id string) (order []int) {
	for part := range strings.SplitSeq(id, ":") {
		n, err := strconv.Atoi(part)
		if err != nil {
			n = math.MaxInt
		}
		order = append(order, n)
	}
	return order
}

// larger reports whether a graph has more nodes, or more inputs in all of them.
func (g *Graph) larger(nodes, inputs int) bool {
	for _, id := range g.ids {
		inputs -= g.inputs(id).Len()
	}
	return len(g.ids) > nodes || inputs < 0
}

// Nodes returns the ids of all nodes, small numbers first.
func (g *Graph) Nodes() []string { return g.ids }

// Class returns the class of a node, "" if there is no such node.
func (g *Graph) Class(id string) string { return g.nodes.Object(id).String("class_type") }

// Title returns the author's name for a node, else its class.
func (g *Graph) Title(id string) string {
	if title := g.nodes.Object(id).Object("_meta").String("title"); title != "" {
		return title
	}
	return g.Class(id)
}

func (g *Graph) inputs(id string) *pyjson.Object { return g.nodes.Object(id).Object("inputs") }

// literal returns the value of an input that is not a link; nil if there is none.
func (g *Graph) literal(id, input string) pyjson.Value {
	value, ok := g.inputs(id).Get(input)
	if !ok {
		return nil
	}
	if _, linked := link(value); linked {
		return nil
	}
	return value
}

// linked returns the node that an input comes from, "" if it is not a link.
func (g *Graph) linked(id, input string) string {
	value, ok := g.inputs(id).Get(input)
	if !ok {
		return ""
	}
	from, _ := link(value)
	return from
}

func link(value pyjson.Value) (from string, ok bool) {
	list, ok := value.(pyjson.Array)
	if !ok || len(list) != 2 {
		return "", false
	}
	id, ok := list[0].(pyjson.String)
	if !ok {
		return "", false
	}
	_, ok = list[1].(pyjson.Number)
	return string(id), ok
}

// find returns the node with an id, or the one with a title.
func (g *Graph) find(name string) (string, error) {
	if g.nodes.Has(name) {
		return name, nil
	}
	found := ""
	for _, id := range g.ids {
		if !strings.EqualFold(g.Title(id), name) {
			continue
		}
		if found != "" {
			return "", fmt.Errorf("nodes %s and %s are both called %q", found, id, name)
		}
		found = id
	}
	if found == "" {
		return "", fmt.Errorf("no node has the id or the title %q", name)
	}
	return found, nil
}

// clone returns a copy whose literals may be changed.
func (g *Graph) clone() *Graph {
	nodes, _ := pyjson.Clone(g.nodes).(*pyjson.Object)
	return &Graph{nodes: nodes, ids: g.ids}
}

func (g *Graph) set(s Slot, value pyjson.Value) { g.inputs(s.Node).Set(s.Input, value) }

// Bytes returns the graph as JSON.
func (g *Graph) Bytes() []byte { return pyjson.Marshal(g.nodes) }
