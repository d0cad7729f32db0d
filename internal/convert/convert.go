// Package convert turns a workflow in the format in which the web UI saves into ComfyUI's
// API format, as the web UI does when it queues one.
//
// It reads untrusted workflows: what it makes, and the work it takes, are bounded.
package convert

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

const (
	// maxSteps bounds the work for a workflow: each node, slot and link that is looked at
	// is a step. A subgraph inside another one can multiply them.
	maxSteps = 2_000_000
	// maxDepth bounds how deep subgraphs are nested, maxHops how many nodes that do not
	// run a link may pass.
	maxDepth = 16
	maxHops  = 1000
	// maxID bounds an id of a node, in bytes.
	maxID = 100
	// maxProblems bounds how many nodes an error names.
	maxProblems = 100
)

// Classes finds a node class: its object in /object_info, or nil if there is none.
type Classes func(name string) *pyjson.Object

// Problem is what is wrong with one node.
type Problem struct {
	// Node is its id, Class its type.
	Node, Class string
	Reason      string
}

// Error are the nodes that cannot be converted.
type Error struct{ Problems []Problem }

// Error names each node.
func (e *Error) Error() string {
	all := make([]string, len(e.Problems))
	for n, p := range e.Problems {
		all[n] = fmt.Sprintf("node %s (%s): %s", p.Node, p.Class, p.Reason)
	}
	return strings.Join(all, "; ")
}

// IsSaved reports whether a workflow is in the format in which the web UI saves.
func IsSaved(workflow *pyjson.Object) bool {
	_, ok := workflow.Get("nodes")
	return ok && workflow.Array("nodes") != nil
}

// ErrLarge is the error for a workflow that is more than it seems: its subgraphs multiply.
var ErrLarge = errors.New("workflow: is too large once its subgraphs are put in")

// ToAPI converts a workflow to one of at most limit bytes. The error may be an *[Error]; any
// other one is about the workflow as a whole, for its author.
func ToAPI(workflow *pyjson.Object, limit int, classes Classes) (*pyjson.Object, error) {
	c := &converter{classes: classes, room: limit, known: map[string]*class{}, subgraphs: map[string]*pyjson.Object{}, out: pyjson.NewObject()}
	for _, v := range workflow.Object("definitions").Array("subgraphs") {
		if definition, ok := v.(*pyjson.Object); ok {
			c.subgraphs[definition.String("id")] = definition
		}
	}
	root, err := c.open(workflow, nil, nil)
	if err != nil {
		return nil, err
	}
	if err := c.emit(root); err != nil {
		return nil, err
	}
	if len(c.problems) > 0 {
		return nil, &Error{c.problems}
	}
	c.dropDangling()
	return c.out, nil
}

// converter converts one workflow.
type converter struct {
	classes   Classes
	known     map[string]*class
	subgraphs map[string]*pyjson.Object
	// steps have been taken, room is left in bytes.
	steps, room int
	out         *pyjson.Object
	problems    []Problem
}

// graph is the workflow itself or one use of a subgraph.
type graph struct {
	c *converter
	// prefix begins the ids of its nodes.
	prefix string
	depth  int
	nodes  []*node
	byID   map[string]*node
	links  map[string]link
	// results are the links to the subgraph's own outputs, by slot; leads are, for its inputs
	// that lead to widgets, the first link to one.
	results map[int]link
	leads   map[int]link
	// outer is where the subgraph is used, host the node there. They are nil for the
	// workflow itself.
	outer      *graph
	host       *node
	definition *pyjson.Object
}

// link leads from an output to an input.
type link struct {
	from, to         string // ids of nodes
	fromSlot, toSlot int
}

// The nodes in a subgraph that stand for its own inputs and outputs.
const (
	inputNode  = "-10"
	outputNode = "-20"
)

// idText is an id, which is a number or a text.
func idText(v pyjson.Value) string {
	switch v := v.(type) {
	case pyjson.Number:
		return string(v)
	case pyjson.String:
		return string(v)
	}
	return ""
}

func slotOf(v pyjson.Value) int {
	n, _ := v.(pyjson.Number)
	i, ok := n.Int64()
	if !ok || i < 0 || i > 1<<20 {
		return -1
	}
	return int(i)
}

// open reads the nodes and links of a graph.
func (c *converter) open(definition *pyjson.Object, outer *graph, host *node) (*graph, error) {
	g := &graph{c: c, byID: map[string]*node{}, links: map[string]link{}, results: map[int]link{}, leads: map[int]link{}, outer: outer, host: host, definition: definition}
	if outer != nil {
		g.prefix, g.depth = outer.prefix+host.id+":", outer.depth+1
	}
	if g.depth > maxDepth {
		return nil, errors.New("workflow: its subgraphs are nested too deeply")
	}
	for _, v := range definition.Array("nodes") {
		o, _ := v.(*pyjson.Object)
		if !c.step(1 + len(o.Array("inputs")) + len(o.Array("outputs"))) {
			return nil, ErrLarge
		}
		n := readNode(o)
		if n.id == "" || len(n.id) > maxID || g.byID[n.id] != nil {
			return nil, errors.New("workflow: has a node without an id of its own")
		}
		g.nodes, g.byID[n.id] = append(g.nodes, n), n
	}
	slices.SortStableFunc(g.nodes, func(a, b *node) int { return cmp.Compare(a.order, b.order) })
	links := definition.Array("links")
	if !c.step(len(links)) {
		return nil, ErrLarge
	}
	for _, v := range links {
		g.addLink(v)
	}
	for _, n := range g.nodes {
		definition := c.subgraphs[n.kind]
		if definition == nil || n.mode == modeNever || n.mode == modeBypass {
			continue
		}
		inner, err := c.open(definition, g, n)
		if err != nil {
			return nil, err
		}
		n.inner = inner
	}
	return g, nil
}

// addLink reads a link in either of the two forms.
func (g *graph) addLink(v pyjson.Value) {
	var id string
	var l link
	switch v := v.(type) {
	case pyjson.Array:
		if len(v) < 5 {
			return
		}
		id, l = idText(v[0]), link{idText(v[1]), idText(v[3]), slotOf(v[2]), slotOf(v[4])}
	case *pyjson.Object:
		id, l = member(v, "id"), link{member(v, "origin_id"), member(v, "target_id"), slot(v, "origin_slot"), slot(v, "target_slot")}
	default:
		return
	}
	g.links[id] = l
	if l.to == outputNode {
		if _, taken := g.results[l.toSlot]; !taken {
			g.results[l.toSlot] = l
		}
	}
	if to := g.byID[l.to]; l.from == inputNode && to != nil && l.toSlot >= 0 && l.toSlot < len(to.inputs) && to.inputs[l.toSlot].widget {
		if _, taken := g.leads[l.fromSlot]; !taken {
			g.leads[l.fromSlot] = l
		}
	}
}

// step takes steps, and reports whether there are so many.
func (c *converter) step(n int) bool {
	c.steps += n
	return c.steps <= maxSteps
}

func member(o *pyjson.Object, key string) string {
	v, _ := o.Get(key)
	return idText(v)
}

func slot(o *pyjson.Object, key string) int {
	v, _ := o.Get(key)
	return slotOf(v)
}

// emit writes the nodes of a graph that run.
func (c *converter) emit(g *graph) error {
	for _, n := range g.nodes {
		switch {
		case n.isVirtual() || n.mode == modeNever || n.mode == modeBypass:
		case n.inner != nil:
			if err := c.emit(n.inner); err != nil {
				return err
			}
		default:
			inputs, reason := c.inputs(g, n)
			if c.steps > maxSteps {
				return ErrLarge
			}
			if reason != "" {
				if len(c.problems) < maxProblems {
					c.problems = append(c.problems, Problem{g.prefix + n.id, n.kind[:min(len(n.kind), maxID)], reason})
				}
				continue
			}
			converted := pyjson.NewObject(
				pyjson.Member{Key: "inputs", Value: inputs},
				pyjson.Member{Key: "class_type", Value: pyjson.String(n.kind)},
				pyjson.Member{Key: "_meta", Value: pyjson.NewObject(pyjson.Member{Key: "title", Value: pyjson.String(cmp.Or(n.title, c.titleOf(n.kind)))})},
			)
			if c.room -= len(g.prefix) + len(pyjson.Marshal(converted)); c.room < 0 {
				return ErrLarge
			}
			c.out.Set(g.prefix+n.id, converted)
		}
	}
	return nil
}

// inputs are the inputs of a node that runs: the values of its widgets, then what is linked.
func (c *converter) inputs(g *graph, n *node) (inputs *pyjson.Object, reason string) {
	class := c.class(n.kind)
	if class == nil {
		return nil, "the class is not known to any server"
	}
	inputs, reason = c.widgetValues(class, n.values)
	if reason != "" {
		return nil, reason
	}
	for i, in := range n.inputs {
		found, ok := g.resolve(n, i, 0)
		switch {
		case !ok:
		case found.value != nil:
			inputs.Set(in.name, wrapped(found.value))
		default:
			inputs.Set(in.name, pyjson.Array{pyjson.String(found.node), pyjson.Int(int64(found.slot))})
		}
	}
	return inputs, ""
}

// dropDangling removes links to nodes that do not run.
func (c *converter) dropDangling() {
	for _, v := range c.out.All() {
		node, _ := v.(*pyjson.Object)
		inputs := node.Object("inputs")
		for _, name := range slices.Collect(maps.Keys(maps.Collect(inputs.All()))) {
			if l := inputs.Array(name); len(l) == 2 {
				if id, ok := l[0].(pyjson.String); ok && !c.out.Has(string(id)) {
					inputs.Delete(name)
				}
			}
		}
	}
}

// wrapped is a value of a widget as an input: ComfyUI takes a bare list for a link.
func wrapped(v pyjson.Value) pyjson.Value {
	if list, ok := v.(pyjson.Array); ok {
		return pyjson.NewObject(pyjson.Member{Key: "__value__", Value: list})
	}
	return v
}
