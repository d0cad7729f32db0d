package sim

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// run is the execution of one prompt.
//
// Many methods: the nodes of a prompt share the outputs, the cache and the progress
// of its execution.
type run struct {
	proc    *process
	it      *item
	id      string
	client  *string
	results *resultCache
	objects *objects
	keys    *keyer
	order   *schedule

	// Nodes created by expansion.
	expanded map[string]*pyjson.Object
	parents  map[string]string
	displays map[string]string    // which node is shown for one of a loop
	waiting  map[string]*subgraph // expanded nodes whose outputs are not known yet

	async    map[string]*asyncCall
	returned chan string // ids of async nodes that have finished
	loop     *eventLoop  // of the async nodes that are under way

	executed []string
	visited  []string // nodes whose ui result this run saw
	cachedUI map[string]bool
	messages pyjson.Array
	success  bool

	mu    sync.Mutex
	board progressBoard
	steps int
}

type asyncCall struct {
	result nodeResult
	exc    *exception
	inputs *pyjson.Object
}

// objects tracks node objects, whose random temp prefix lives as long as they do.
type objects struct{ prefixes map[string]string }

func newObjects() *objects { return &objects{prefixes: map[string]string{}} }

func newRun(p *process, it *item, client *string, results *resultCache, objs *objects) *run {
	r := &run{
		proc: p, it: it, id: it.id, client: client, results: results, objects: objs, success: true,
		expanded: map[string]*pyjson.Object{}, parents: map[string]string{}, displays: map[string]string{}, waiting: map[string]*subgraph{},
		async: map[string]*asyncCall{}, returned: make(chan string, 64), cachedUI: map[string]bool{},
	}
	r.keys = newKeyer(r)
	r.order = newSchedule(r)
	return r
}

// secondsDuration rounds to microseconds, so that 0.4/2 and 0.6/3 are the same.
func secondsDuration(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Microsecond)
}

func (r *run) node(id string) *pyjson.Object {
	if n, ok := r.expanded[id]; ok {
		return n
	}
	return r.it.graph.Object(id)
}

func (r *run) class(id string) *class {
	cl, ok := r.proc.cat.class(r.node(id).String("class_type"))
	if !ok {
		return &class{}
	}
	return cl
}

// real returns the node of the prompt that an expanded node comes from.
func (r *run) real(id string) string {
	for r.parents[id] != "" {
		id = r.parents[id]
	}
	return id
}

// display returns the node that is shown for an expanded one.
func (r *run) display(id string) string {
	if shown := r.displays[id]; shown != "" {
		return shown
	}
	return r.real(id)
}

// parent returns the id of the expanding node, nil for a node of the prompt.
func (r *run) parent(id string) any {
	if p := r.parents[id]; p != "" {
		return p
	}
	return nil
}

func (r *run) isCached(id string) bool {
	if r.node(id) == nil {
		return false
	}
	_, ok := r.results.get(r.keys.key(id))
	return ok
}

// send sends a message to the client of the prompt; without a client it goes
// nowhere.
func (r *run) send(kind string, data *pyjson.Object) {
	if r.client != nil {
		r.proc.hub.publish(r.client, message(kind, data))
	}
}

// note is send for messages that the history keeps. broadcast messages reach every
// socket if the prompt has no client.
func (r *run) note(kind string, data *pyjson.Object, broadcast bool) {
	data.Set("timestamp", pyjson.Int(now()))
	r.messages = append(r.messages, list(kind, data))
	if r.client != nil || broadcast {
		r.proc.hub.publish(r.client, message(kind, data))
	}
}

// execute runs the prompt. It reports false if the worker thread died.
func (r *run) execute() bool {
	r.note("execution_start", dict("prompt_id", r.id), false)
	if r.proc.assetsOn() { // everybody is told of a scan, which each prompt stops
		r.proc.hub.publish(nil, message("assets.seed.progress", dict("phase", "fast", "scanned", 1, "total", 2, "created", 0)))
	}
	for id, node := range r.it.graph.All() {
		if o, ok := node.(*pyjson.Object); !ok || o.Object("inputs") == nil {
			r.proc.srv.log.Warn("a node without inputs killed the worker", "node", id)
			return false
		}
	}
	keys := map[string]cacheKey{}
	for _, id := range r.it.graph.Keys() {
		keys[id] = r.keys.key(id)
	}
	r.results.begin(keys)
	hits := []string{}
	for _, id := range r.it.graph.Keys() {
		if r.isCached(id) {
			hits = append(hits, id)
		}
	}
	r.note("execution_cached", dict("nodes", hits, "prompt_id", r.id), false)
	for _, id := range r.it.outputs {
		if exc := r.order.add(id); exc != nil {
			r.proc.srv.log.Warn("a prompt killed the worker", "reason", exc.message)
			return false
		}
	}
	if r.pause(r.proc.worker, r.proc.cfg.Overhead.Seconds()) != nil {
		return false
	}
	if exc := r.faultOfRun(); exc != nil {
		return r.fail(r.order.next(), exc, dict())
	}
	for len(r.order.pending) > 0 {
		id := r.order.next()
		for id == "" && len(r.async) > 0 {
			select {
			case ready := <-r.returned:
				r.order.release(ready)
			case <-r.proc.worker.Done():
				return false
			}
			r.drainReturned()
			id = r.order.next()
		}
		if id == "" {
			return r.fail(r.order.blame(), raise("graph.DependencyCycleError", "Dependency cycle detected"), dict())
		}
		if alive, more := r.runNode(id); !more {
			return alive
		}
	}
	r.note("execution_success", dict("prompt_id", r.id), false)
	return true
}

func (r *run) drainReturned() {
	for {
		select {
		case ready := <-r.returned:
			r.order.release(ready)
		default:
			return
		}
	}
}

// runNode executes one node. more is false if the run is over, and alive then says
// whether the worker is alive.
func (r *run) runNode(id string) (alive, more bool) {
	pending, inputs, exc := r.executeNode(id)
	if exc != nil {
		return r.fail(id, exc, inputs), false
	}
	if !pending {
		r.order.done(id)
	}
	return true, true
}

// faultOfRun applies the faults that affect whole runs.
func (r *run) faultOfRun() *exception {
	f := r.proc.srv.Fault()
	n := r.proc.srv.Started()
	switch {
	case f.FailEvery > 0 && n%f.FailEvery == 0:
		return raise("RuntimeError", "simulated fault")
	case f.Poisoned:
		return raise("torch.AcceleratorError", "CUDA error: an illegal memory access was encountered\n"+
			"CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\n")
	case f.OOMEvery > 0 && n%f.OOMEvery == 0:
		return outOfMemory()
	}
	return nil
}

// fail ends the run at a node. It reports false if the worker died.
func (r *run) fail(id string, exc *exception, inputs *pyjson.Object) bool {
	if exc.kind == kindWorkerDied {
		return false
	}
	r.success = false
	node := r.real(id)
	kind := r.it.graph.Object(node).String("class_type")
	if exc.kind == kindInterrupted {
		r.note("execution_interrupted", dict("prompt_id", r.id, "node_id", node, "node_type", kind, "executed", r.executedList()), true)
		return true
	}
	if exc.kind == outOfMemory().kind {
		r.proc.memory.unloadAll()
	}
	if inputs == nil {
		inputs = dict()
	}
	r.note("execution_error", dict("prompt_id", r.id, "node_id", node, "node_type", kind, "executed", r.executedList(),
		"exception_message", exc.message+"\n"+exc.tips, "exception_type", exc.kind,
		"traceback", traceback("execute", "get_output_data", "_async_map_node_over_list", "process_inputs", "run"),
		"current_inputs", inputs, "current_outputs", r.knownNodes()), false)
	return true
}

func (r *run) executedList() []string {
	if r.executed == nil {
		return []string{}
	}
	return slices.Clone(r.executed)
}

// knownNodes returns what the server calls current_outputs: every node of the graph.
func (r *run) knownNodes() []string { return r.it.graph.Keys() }

// entry returns the history entry of the finished run.
func (r *run) entry() *pyjson.Object {
	extra := r.it.extra
	if r.proc.feat.stripsHistory {
		extra = r.it.publicExtra()
	}
	status := "success"
	if !r.success {
		status = "error"
	}
	outputs, meta := dict(), dict()
	for _, id := range r.shownNodes() {
		if hit, ok := r.results.get(r.keys.key(id)); ok && hit.ui != nil {
			outputs.Set(id, r.shown(hit.ui))
			meta.Set(id, hit.meta)
		}
	}
	return dict("prompt", r.it.tuple(extra), "outputs", outputs,
		"status", dict("status_str", status, "completed", r.success, "messages", r.messages), "meta", meta)
}

// shownNodes returns the nodes whose results go into the history.
func (r *run) shownNodes() []string {
	if !r.proc.feat.visitedOutputs {
		ids := r.it.graph.Keys()
		for id := range r.expanded {
			ids = append(ids, id)
		}
		slices.SortStableFunc(ids[r.it.graph.Len():], strings.Compare)
		return ids
	}
	var ids []string
	for _, id := range r.visited {
		if r.cachedUI[id] && r.client == nil && !r.proc.feat.cachedOutputsFixed {
			continue
		}
		ids = append(ids, id)
	}
	return ids
}
