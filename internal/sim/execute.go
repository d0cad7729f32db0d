package sim

import (
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// nodeType is the behaviour of a class. The zero value is the generic behaviour.
type nodeType struct {
	run func(*call) (nodeResult, *exception)
	// validate is the class's own validation. A non-empty text refuses the node. The
	// text is repeated for each input named in validates.
	validate  func(*folders, *pyjson.Object) (string, *exception)
	validates []string
	// fingerprint returns a value that changes with what the inputs refer to. "" means
	// that the node always runs.
	fingerprint func(*folders, *pyjson.Object) (string, error)
	async       bool
	eager       bool // lazy inputs are evaluated anyway
}

// nodeResult is what a node returns.
type nodeResult struct {
	outputs []any          // one per output slot
	ui      *pyjson.Object // shown to the client, or nil
	expand  *subgraph      // instead of outputs
}

// call is one execution of a node.
type call struct {
	*run
	node  string
	class *class
	args  map[string]any // literals as pyjson.Value, linked values unchanged
}

// blocker is the value of an output that must not be used. message is nil if
// nobody needs to know.
type blocker struct{ message *string }

// executeNode runs one node, takes its result from the cache, or continues with one
// that was waiting. pending means that it will be called again.
func (r *run) executeNode(id string) (pending bool, inputs *pyjson.Object, exc *exception) {
	key := r.keys.key(id)
	if hit, ok := r.results.get(key); ok {
		var output pyjson.Value = pyjson.Null{}
		if hit.ui != nil {
			output = r.shown(hit.ui)
		}
		r.visited = append(r.visited, id)
		r.cachedUI[id] = true
		r.send("executed", dict("node", id, "display_node", r.display(id), "output", output, "prompt_id", r.id))
		r.finishProgress(id)
		return false, nil, nil
	}
	var result nodeResult
	switch {
	case r.async[id] != nil:
		done := r.async[id]
		delete(r.async, id)
		if done.exc != nil {
			return false, done.inputs, done.exc
		}
		result = done.result
	case r.waiting[id] != nil:
		result.outputs = r.resolve(r.waiting[id])
		delete(r.waiting, id)
	default:
		c := &call{run: r, node: id, class: r.class(id)}
		result, pending, inputs, exc = r.begin(c)
		if exc != nil || pending {
			return pending, inputs, exc
		}
	}
	if result.expand != nil {
		return true, inputs, r.expand(id, result.expand)
	}
	r.keep(id, key, result)
	r.finishProgress(id)
	r.executed = append(r.executed, id)
	return false, nil, nil
}

// begin announces a node and calls it.
func (r *run) begin(c *call) (result nodeResult, pending bool, inputs *pyjson.Object, exc *exception) {
	r.startProgress(c.node)
	var blocked *blocker
	c.args, inputs, blocked = r.arguments(c.node, c.class)
	if r.client != nil {
		r.proc.mu.Lock()
		r.proc.active = r.display(c.node)
		r.proc.mu.Unlock()
		r.send("executing", dict("node", c.node, "display_node", r.display(c.node), "prompt_id", r.id))
	}
	if exc := r.gate(); exc != nil {
		return result, false, inputs, exc
	}
	if blocked != nil {
		return r.block(c, blocked), false, inputs, nil
	}
	do := c.class.run
	if do == nil {
		do = runGeneric
	}
	if !c.class.async {
		result, exc = do(c)
		return result, false, inputs, exc
	}
	r.order.hold(c.node)
	state := &asyncCall{inputs: inputs}
	if len(r.async) == 0 {
		r.loop = newEventLoop(r.proc.srv.clock)
	}
	joined := make(chan struct{})
	r.async[c.node] = state
	go func() {
		if r.loop.sleep(r.proc.worker, 0, true) != nil {
			return
		}
		close(joined)
		state.result, state.exc = do(c)
		r.loop.leave()
		// Python's event loop returns to a finished task only after other tasks that are
		// also ready.
		_ = r.pause(r.proc.worker, loopTurn.Seconds())
		r.returned <- c.node
	}()
	// The node runs up to its first wait before the next one starts.
	select {
	case <-joined:
	case <-r.proc.worker.Done():
	}
	return result, true, inputs, nil
}

// loopTurn is the simulated time until the loop notices the end of an async node.
const loopTurn = 20 * time.Millisecond

// gate checks the interrupt flag before a node starts.
func (r *run) gate() *exception {
	if r.proc.interrupted.CompareAndSwap(true, false) {
		return interrupted()
	}
	if r.proc.worker.Err() != nil {
		return workerDied()
	}
	return nil
}

// block returns the result of a node fed by an ExecutionBlocker. A message is shown
// once; downstream nodes are then blocked silently.
func (r *run) block(c *call, b *blocker) nodeResult {
	if b.message != nil {
		data := dict("prompt_id", r.id, "node_id", c.node, "node_type", c.class.name, "executed", r.executedList(),
			"exception_message", "Execution Blocked: "+*b.message, "exception_type", "ExecutionBlocked",
			"traceback", list(), "current_inputs", list(), "current_outputs", list())
		r.proc.hub.publish(r.client, message("execution_error", data))
	}
	outputs := make([]any, len(c.class.outputs))
	for i := range outputs {
		outputs[i] = &blocker{}
	}
	return nodeResult{outputs: outputs}
}

// arguments resolves the inputs of a node. shown is how an execution_error lists
// them.
func (r *run) arguments(id string, cl *class) (args map[string]any, shown *pyjson.Object, blocked *blocker) {
	args, shown = map[string]any{}, &pyjson.Object{}
	for name, v := range r.node(id).Object("inputs").All() {
		var arg any = v
		if isLink(v) {
			hit, ok := r.results.get(r.keys.key(linkSource(v)))
			number, _ := python.Number(v.(pyjson.Array)[1])
			slot := int(number.Float64())
			if !ok || slot >= len(hit.outputs) {
				continue // a lazy input that was not requested
			}
			arg = hit.outputs[slot]
			if b, ok := arg.(*blocker); ok && blocked == nil {
				blocked = b
			}
		} else if !cl.declares(name) || cl.unknownOption(name, v) {
			continue
		}
		args[name] = arg
		shown.Set(name, list(printed(arg)))
	}
	for name, v := range cl.info.Object("input").Object("hidden").All() {
		kind := v
		if a, ok := v.(pyjson.Array); ok && len(a) > 0 {
			kind = a[0]
		}
		switch kind {
		case pyjson.String("PROMPT"):
			shown.Set(name, list(python.Repr(r.it.graph)))
		case pyjson.String("EXTRA_PNGINFO"):
			info, _ := r.it.extra.Get("extra_pnginfo")
			shown.Set(name, list(printedValue(info)))
		case pyjson.String("UNIQUE_ID"):
			shown.Set(name, list(id))
		}
	}
	return args, shown, blocked
}

// declares reports whether the class has an input of this name, including dynamic
// ones.
func (c *class) declares(name string) bool {
	for _, in := range c.inputs {
		if in.name == name || len(name) > len(in.name) && name[:len(in.name)+1] == in.name+"." {
			return true
		}
	}
	return false
}

// unknownOption reports whether a dynamic combo is set to an option it does
// not have. Such a value never reaches the node.
func (c *class) unknownOption(name string, chosen pyjson.Value) bool {
	in, ok := c.input(name)
	if !ok || in.typeName() != "COMFY_DYNAMICCOMBO_V3" {
		return false
	}
	return !slices.ContainsFunc(in.options.Array("options"), func(v pyjson.Value) bool {
		option, _ := v.(*pyjson.Object)
		key, ok := option.Get("key")
		return ok && pyjson.Equal(key, chosen)
	})
}

// printedValue returns what an error shows for a literal: scalars unchanged,
// anything else as Python text.
func printedValue(v pyjson.Value) pyjson.Value {
	switch v.(type) {
	case nil:
		return pyjson.Null{}
	case pyjson.Array, *pyjson.Object:
		return pyjson.String(python.Repr(v))
	}
	return v
}

func printed(arg any) pyjson.Value {
	switch arg := arg.(type) {
	case pyjson.Value:
		return printedValue(arg)
	case images:
		return pyjson.String(arg.printed())
	}
	return pyjson.String("<object>")
}

// keep stores a result and sends the client what the node shows.
func (r *run) keep(id string, key cacheKey, result nodeResult) {
	entry := &cached{outputs: result.outputs, ui: result.ui}
	r.visited = append(r.visited, id)
	if result.ui != nil {
		entry.meta = dict("node_id", id, "display_node", r.display(id), "parent_node", r.parent(id), "real_node_id", r.real(id))
		r.send("executed", dict("node", id, "display_node", r.display(id), "output", r.shown(result.ui), "prompt_id", r.id))
	}
	r.results.put(key, entry)
}

// expand adds the nodes of a subgraph to the run. The expanding node waits for
// those that its outputs come from.
func (r *run) expand(id string, sub *subgraph) *exception {
	for newID, node := range sub.nodes.All() {
		if r.node(newID) != nil {
			return raise("comfy_execution.graph_utils.DuplicateNodeError",
				"Attempt to add duplicate node %s. Ensure node ids are unique and deterministic or use graph_utils.GraphBuilder.", newID)
		}
		r.expanded[newID] = node.(*pyjson.Object)
		r.parents[newID] = id
	}
	for newID := range sub.nodes.All() {
		if r.class(newID).outputNode {
			if exc := r.order.add(newID); exc != nil {
				return exc
			}
		}
	}
	for _, out := range sub.outputs {
		if isLink(out) {
			if exc := r.order.link(linkSource(out), id); exc != nil {
				return exc
			}
		}
	}
	r.waiting[id] = sub
	return nil
}

// resolve returns the outputs of an expanded node.
func (r *run) resolve(sub *subgraph) []any {
	outputs := make([]any, len(sub.outputs))
	for i, out := range sub.outputs {
		outputs[i] = out
		if !isLink(out) {
			continue
		}
		number, _ := python.Number(out.(pyjson.Array)[1])
		if hit, ok := r.results.get(r.keys.key(linkSource(out))); ok {
			if slot := int(number.Float64()); slot < len(hit.outputs) {
				outputs[i] = hit.outputs[slot]
			}
		}
	}
	return outputs
}
