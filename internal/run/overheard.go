package run

import (
	"maps"
	"slices"
	"sync"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/stream"
)

const (
	// maxOverheard bounds the nodes of other parts that a run is yet to tell of, and those that it has
	// told of: a machine may name nodes that the graph has not.
	maxOverheard = 1000
	// maxEntering and maxBoard bound a message of another part about a node and one about all, in bytes.
	// Those of the largest graphs that are made apart are a tenth of that.
	maxEntering = 16 << 10
	maxBoard    = 4 << 20
)

// overheard is what a run has heard of the runs of its job's other parts, whose goroutines write it.
// The zero value is empty.
type overheard struct {
	mu sync.Mutex
	// began are the messages of nodes that the client was not told of yet.
	began []message
	// progress are the nodes of the newest progress_state of each part.
	progress map[string]*pyjson.Object
	// asked says that the run was asked to look, and alone that its own part has ended.
	asked, alone bool
}

// message is one about a node.
type message struct {
	node string
	data []byte
}

// hear notes a message of a part, and reports whether the run must be asked to look.
func (o *overheard) hear(part string, m comfyui.Message, data []byte) (ask bool) {
	board := boardOf(m, data)
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case m.Type == comfyui.TypeExecuting && m.Node != "" && len(data) <= maxEntering:
		if len(o.began) < maxOverheard {
			o.began = append(o.began, message{m.Node, data})
		}
		ask = true
	case board != nil:
		if o.progress == nil {
			o.progress = map[string]*pyjson.Object{}
		}
		o.progress[part] = board
		ask = o.alone // otherwise the run's own messages will show it
	}
	ask = ask && !o.asked
	o.asked = o.asked || ask
	return ask
}

// boardOf returns the nodes of a progress_state message; nil for others.
func boardOf(m comfyui.Message, data []byte) *pyjson.Object {
	if m.Type != comfyui.TypeProgressState || len(data) > maxBoard {
		return nil
	}
	v, _ := pyjson.Parse(data)
	o, _ := v.(*pyjson.Object)
	return o.Object("data").Object("nodes")
}

// take returns what is to be told. Before the run's first node has begun that is nothing: no server says
// that a node begins, and then which ones it has in its cache.
func (o *overheard) take(begun bool) []message {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !begun && !o.alone {
		return nil
	}
	began := o.began
	o.began, o.asked = nil, false
	return began
}

// leave notes that the run's own part has ended.
func (o *overheard) leave() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.alone = true
}

// join adds to a progress_state message the nodes that only other parts have run.
func (o *overheard) join(own []byte) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.progress) == 0 {
		return own
	}
	v, err := pyjson.Parse(own)
	all, ok := v.(*pyjson.Object)
	nodes := all.Object("data").Object("nodes")
	if err != nil || !ok || nodes == nil {
		return own
	}
	for _, part := range slices.Sorted(maps.Keys(o.progress)) {
		for id, node := range o.progress[part].All() {
			if !nodes.Has(id) {
				nodes.Set(id, node)
			}
		}
	}
	return pyjson.Marshal(all)
}

// overheard tells the run of a job what one of its parts has said.
func (rs *Runs) overheard(part job.Job, m comfyui.Message, data []byte) {
	if r := rs.Get(part.Parent); r != nil && r.others.hear(part.Key, m, data) {
		r.mail.put(runEvent{kind: partMoved})
	}
}

// isApart reports whether the parts make other outputs each, so that they run different nodes. The
// division may be nil.
func (v *division) isApart() bool { return v != nil && v.parts[0].Outputs != nil }

// entering shows that a node of the run begins.
func (r showing) entering(m comfyui.Message, data []byte) {
	first := r.current == nil
	if r.division.isApart() {
		r.current = data
		r.enter(m.Node)
	}
	r.send(stream.Executing, m.Node, data)
	if first {
		r.aside() // of what began earlier
	}
}

// enter notes that the client is told that a node begins.
func (r showing) enter(node string) {
	if r.entered == nil {
		r.entered = map[string]bool{}
	}
	if len(r.entered) < maxOverheard {
		r.entered[node] = true
	}
}

// advancing shows the progress of the run's nodes, and of those of other parts.
func (r showing) advancing(data []byte) {
	if r.division.isApart() {
		r.board = data
		data = r.others.join(data)
	}
	r.send(stream.ProgressState, "", data)
}

// aside shows what other parts are doing. A client takes the last node that begins for the one that
// its previews are of, so the run's own is told again.
func (r showing) aside() {
	began := r.others.take(r.current != nil)
	if !r.division.isApart() {
		return
	}
	began = slices.DeleteFunc(began, func(m message) bool { return r.entered[m.node] })
	for _, m := range began {
		r.enter(m.node)
		r.send(stream.Executing, m.node, m.data)
	}
	if m, ok := comfyui.ParseMessage(r.current); ok && len(began) > 0 && r.phase == executing {
		r.send(stream.Executing, m.Node, r.current)
	}
	if r.board != nil {
		r.advancing(r.board)
	}
}
