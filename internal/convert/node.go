package convert

import "github.com/comfyhub/comfyhub/internal/pyjson"

// The modes of nodes that do not run.
const (
	modeNever  = 2 // muted
	modeBypass = 4
)

// node is a node as the web UI saves it.
type node struct {
	id, kind, title string
	mode, order     int
	inputs          []input
	outputs         []string // their types
	// values are the values of the widgets: an array or an object.
	values pyjson.Value
	// inner is what a subgraph consists of.
	inner *graph
}

// input is an input of a node. A widget has one only if it can be linked.
type input struct {
	name, kind, link string
	widget           bool
}

func readNode(o *pyjson.Object) *node {
	n := &node{id: member(o, "id"), kind: o.String("type"), title: o.String("title"), mode: slot(o, "mode"), order: slot(o, "order")}
	n.values, _ = o.Get("widgets_values")
	for _, v := range o.Array("inputs") {
		in, _ := v.(*pyjson.Object)
		n.inputs = append(n.inputs, input{in.String("name"), kindOf(in), member(in, "link"), in.Has("widget")})
	}
	for _, v := range o.Array("outputs") {
		out, _ := v.(*pyjson.Object)
		n.outputs = append(n.outputs, kindOf(out))
	}
	return n
}

// kindOf is the type of a slot. A list of options is a combo.
func kindOf(slot *pyjson.Object) string {
	if slot.Array("type") != nil {
		return "COMBO"
	}
	return member(slot, "type")
}

// isVirtual reports whether a node is one of the web UI's own, which no server knows.
func (n *node) isVirtual() bool {
	switch n.kind {
	case "Reroute", "PrimitiveNode", "Note", "MarkdownNote":
		return true
	}
	return false
}

// source is where the value of an input comes from: a node's output, or a widget.
type source struct {
	node  string
	slot  int
	value pyjson.Value
}

// resolve finds what an input gets, past all nodes that do not run.
func (g *graph) resolve(n *node, index, hops int) (source, bool) {
	if index < 0 || index >= len(n.inputs) || n.inputs[index].link == "" {
		return source{}, false
	}
	l, ok := g.links[n.inputs[index].link]
	if !ok {
		return source{}, false
	}
	return g.follow(l, hops)
}

// follow finds the source of a link.
func (g *graph) follow(l link, hops int) (source, bool) {
	if hops > maxHops || l.fromSlot < 0 || !g.c.step(1) {
		return source{}, false
	}
	hops++
	if l.from == inputNode && g.outer != nil {
		return g.outside(l.fromSlot, hops)
	}
	from := g.byID[l.from]
	switch {
	case from == nil || from.mode == modeNever:
		return source{}, false
	case from.mode == modeBypass:
		if !g.c.step(len(from.inputs)) {
			return source{}, false
		}
		return g.resolve(from, from.bypass(l.fromSlot), hops)
	case from.kind == "Reroute":
		return g.resolve(from, 0, hops)
	case from.kind == "PrimitiveNode":
		values, _ := from.values.(pyjson.Array)
		if len(values) == 0 {
			return source{}, false
		}
		return source{value: values[0]}, true
	case from.isVirtual():
		return source{}, false
	case from.inner != nil:
		result, ok := from.inner.results[l.fromSlot]
		if !ok {
			return source{}, false
		}
		return from.inner.follow(result, hops)
	}
	return source{node: g.prefix + from.id, slot: l.fromSlot}, true
}

// bypass is the input whose value a bypassed node puts out: the one in the same place if it
// has the type, else the first that has it.
func (n *node) bypass(output int) int {
	if output >= len(n.outputs) {
		return -1
	}
	kind := n.outputs[output]
	if output < len(n.inputs) && fits(n.inputs[output].kind, kind) {
		return output
	}
	for i, in := range n.inputs {
		if in.kind == kind {
			return i
		}
	}
	for i, in := range n.inputs {
		if fits(in.kind, kind) {
			return i
		}
	}
	return -1
}

func fits(a, b string) bool { return a == b || a == "*" || b == "*" }

// outside finds what comes into a subgraph by one of its inputs: what is linked to it, or
// the value of the widget that stands for it.
func (g *graph) outside(index, hops int) (source, bool) {
	declared := g.definition.Array("inputs")
	if index >= len(declared) || !g.c.step(len(g.host.inputs)+index) {
		return source{}, false
	}
	in, _ := declared[index].(*pyjson.Object)
	name := in.String("name")
	for i, outer := range g.host.inputs {
		if outer.name == name && outer.link != "" {
			return g.outer.resolve(g.host, i, hops)
		}
	}
	return g.promoted(index, hops)
}

// promoted is the value of a subgraph's own widget. Its widgets are the inputs that lead to
// widgets, in order. One without a value of its own has that of the widget inside.
func (g *graph) promoted(index, hops int) (source, bool) {
	lead, ok := g.leads[index]
	if !ok || hops > maxHops || !g.c.step(1+index) {
		return source{}, false
	}
	values, _ := g.host.values.(pyjson.Array)
	if len(values) != len(g.leads) {
		return g.inside(lead, hops+1)
	}
	before := 0
	for i := range index {
		if _, leads := g.leads[i]; leads {
			before++
		}
	}
	return source{value: values[before]}, true
}

// inside is the value of the widget that a link from a subgraph's input leads to.
func (g *graph) inside(lead link, hops int) (source, bool) {
	to := g.byID[lead.to]
	name := to.inputs[lead.toSlot].name
	if to.inner != nil {
		for i, v := range to.inner.definition.Array("inputs") {
			if in, _ := v.(*pyjson.Object); in.String("name") == name {
				return to.inner.promoted(i, hops)
			}
		}
		return source{}, false
	}
	class := g.c.class(to.kind)
	if class == nil {
		return source{}, false
	}
	inputs, reason := g.c.widgetValues(class, to.values)
	v, ok := inputs.Get(name)
	return source{value: v}, ok && reason == ""
}
