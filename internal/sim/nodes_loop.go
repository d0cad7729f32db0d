package sim

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

func loopNode(class string) (nodeType, bool) {
	never := func(*folders, *pyjson.Object) (string, error) { return "", nil }
	switch class {
	case "StartLoop":
		return nodeType{run: startLoop, fingerprint: never}, true
	case "EndLoop":
		return nodeType{run: endLoop}, true
	case "LoopIteration":
		return nodeType{run: loopIteration, fingerprint: never}, true
	case "LoopProgress":
		return nodeType{run: loopProgress, fingerprint: never}, true
	case "LoopResult":
		return nodeType{run: func(*call) (nodeResult, *exception) { return nodeResult{}, nil }, fingerprint: never}, true
	}
	return nodeType{}, false
}

// startLoop puts a copy of what is in the loop into the run for each iteration. Loops in
// loops are not simulated.
func startLoop(c *call) (nodeResult, *exception) {
	body, end := c.loopBody(c.node)
	if end == "" {
		return nodeResult{}, raise("KeyError", "'_loop_body'")
	}
	n := c.int("mode.num_iterations", 4)
	c.sayIteration(c.node, 0, n)
	c.order.inhibit(body)
	l := &unrolled{call: c, body: body, end: end, prefix: c.node + ".0.0."}
	closing := c.run.node(end).Object("inputs")
	result := &pyjson.Object{}
	result.Set("accumulate", value(flagOf(closing, "accumulate")))
	carried, _ := c.run.node(c.node).Object("inputs").Get("initial_iteration_value")
	var outputs []string
	for i := range n {
		outputs = append(outputs, l.iterate(i, n, closing, &carried, result)...)
	}
	l.add("result", "LoopResult", end, result)
	c.expanded[end] = dict("class_type", "EndLoop", "inputs", result)
	for _, id := range append(outputs, l.prefix+"result") {
		if exc := c.order.link(id, end); exc != nil {
			return nodeResult{}, exc
		}
	}
	return nodeResult{outputs: []any{pyjson.Null{}, pyjson.Bool(false), pyjson.Bool(n == 0), pyjson.Null{}, pyjson.Null{}}}, nil
}

func flagOf(inputs *pyjson.Object, name string) bool {
	v, _ := inputs.Get(name)
	return v == pyjson.Value(pyjson.Bool(true))
}

// loopBody returns the nodes after a start up to its end.
func (r *run) loopBody(start string) (body []string, end string) {
	reached := map[string]bool{start: true}
	for grown := true; grown; {
		grown = false
		for id := range r.it.graph.All() {
			if reached[id] {
				continue
			}
			for _, v := range r.node(id).Object("inputs").All() {
				if !isLink(v) || !reached[linkSource(v)] || linkSource(v) == end && end != "" {
					continue
				}
				reached[id], grown = true, true
				if r.node(id).String("class_type") == "EndLoop" {
					end = id
				} else {
					body = append(body, id)
				}
				break
			}
		}
	}
	return body, end
}

// unrolled is a loop whose iterations are made.
type unrolled struct {
	*call
	body        []string
	end, prefix string
}

// add adds a node to the run, shown as another one.
func (l *unrolled) add(name, class, shownAs string, inputs *pyjson.Object) string {
	id := l.prefix + name
	l.expanded[id] = dict("class_type", class, "inputs", inputs)
	l.parents[id], l.displays[id] = l.call.node, shownAs
	return id
}

// iterate adds the nodes of one iteration and returns the copies of what the loop returns.
func (l *unrolled) iterate(i, n int, closing *pyjson.Object, carried *pyjson.Value, result *pyjson.Object) (outputs []string) {
	start := l.call.node
	opening := dict("iteration_index", i, "is_first", i == 0, "is_last", i == n-1)
	if *carried != nil {
		opening.Set("current_iteration_value", *carried)
	}
	iteration := l.add(fmt.Sprintf("iteration_%d", i), "LoopIteration", start, opening)
	moved := func(v pyjson.Value) pyjson.Value {
		if !isLink(v) {
			return v
		}
		from := linkSource(v)
		switch {
		case from == start:
			from = iteration
		case slices.Contains(l.body, from):
			from = fmt.Sprintf("%s%d_%s", l.prefix, i, from)
		}
		return pyjson.Array{pyjson.String(from), v.(pyjson.Array)[1]}
	}
	for _, id := range l.body {
		inputs := &pyjson.Object{}
		for name, v := range l.call.run.node(id).Object("inputs").All() {
			inputs.Set(name, moved(v))
		}
		l.add(fmt.Sprintf("%d_%s", i, id), l.call.run.node(id).String("class_type"), id, inputs)
	}
	progress := dict("start_id", start, "position", i+1, "total", n)
	if v, ok := closing.Get("output_value"); ok && isLink(v) {
		v = moved(v)
		result.Set(fmt.Sprintf("output%d", i), v)
		progress.Set("dependency0", v)
		outputs = append(outputs, linkSource(v))
	}
	if v, ok := closing.Get("next_iteration_value"); ok && isLink(v) {
		*carried = moved(v)
	}
	if id := l.add(fmt.Sprintf("progress_%d", i), "LoopProgress", start, progress); l.order.add(id) != nil {
		return nil
	}
	return outputs
}

func loopIteration(c *call) (nodeResult, *exception) {
	return nodeResult{outputs: []any{c.args["iteration_index"], c.args["is_first"], c.args["is_last"], pyjson.Null{}, c.args["current_iteration_value"]}}, nil
}

func loopProgress(c *call) (nodeResult, *exception) {
	c.sayIteration(c.text("start_id"), c.int("position", 0), c.int("total", 0))
	return one(c.args["position"]), nil
}

// endLoop returns what the last iteration made, or what all did.
func endLoop(c *call) (nodeResult, *exception) {
	var all images
	var last any
	for i := 0; ; i++ {
		v, ok := c.args[fmt.Sprintf("output%d", i)]
		if !ok {
			break
		}
		last = v
		if batch, ok := v.(images); ok {
			all = append(all, batch...)
		}
	}
	if c.flag("accumulate") && all != nil {
		last = all
	}
	return one(last), nil
}

// sayIteration tells everybody, below a node, how far its loop is.
func (r *run) sayIteration(node string, i, n int) {
	frame := binary.BigEndian.AppendUint32(nil, frameText)
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(node)))
	r.proc.hub.publishBinary(nil, append(frame, fmt.Sprintf("%sIteration %d / %d", node, i, n)...))
}
