package sim

import (
	"math"
	"slices"
	"sync"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// historyLimit is the number of finished prompts a server remembers.
const historyLimit = 10000

// queue holds pending, running and finished prompts. changed is called with the
// lock held whenever the number of unfinished prompts changes.
type queue struct {
	mu      sync.Mutex
	wake    *sync.Cond
	pending promptHeap
	running []*item // in the order they were taken
	history *pyjson.Object
	taken   int
	unload  bool
	free    bool
	closed  bool
	changed func(remaining int)
}

func newQueue(changed func(remaining int)) *queue {
	q := &queue{history: &pyjson.Object{}, changed: changed}
	q.wake = sync.NewCond(&q.mu)
	return q
}

func (q *queue) remainingLocked() int { return len(q.pending) + len(q.running) }

func (q *queue) remaining() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.remainingLocked()
}

// put adds a prompt. It returns false if the prompt has the same number and id as
// another one. The real server then answers 500 and notifies nobody, but keeps the
// prompt.
func (q *queue) put(it *item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if tied := q.pending.push(it); tied {
		return false
	}
	q.changed(q.remainingLocked())
	q.wake.Signal()
	return true
}

// next waits for a prompt or for a request to free memory. In the latter case the
// item is nil. ok is false when the queue is closed.
func (q *queue) next() (it *item, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.pending) == 0 && !q.unload && !q.free && !q.closed {
		q.wake.Wait()
	}
	switch {
	case q.closed:
		return nil, false
	case len(q.pending) == 0:
		return nil, true
	}
	it = q.pending.pop()
	it.key = q.taken
	q.taken++
	q.running = append(q.running, it)
	q.changed(q.remainingLocked())
	return it, true
}

// done moves a running prompt to the history.
func (q *queue) done(it *item, entry *pyjson.Object) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running = slices.DeleteFunc(q.running, func(r *item) bool { return r.key == it.key })
	if q.history.Len() > historyLimit {
		q.history.Delete(q.history.Keys()[0])
	}
	q.history.Set(it.id, entry)
	q.changed(q.remainingLocked())
}

// clear drops all pending prompts.
func (q *queue) clear() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.clearLocked()
}

func (q *queue) clearLocked() {
	q.pending = nil
	q.changed(q.remainingLocked())
}

// remove removes the pending prompt with the id. Like the real server it sends two
// notifications if it was the last one.
func (q *queue) remove(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(q.pending, func(it *item) bool { return it.id == id })
	if i < 0 {
		return false
	}
	if len(q.pending) == 1 {
		q.clearLocked()
	} else {
		q.pending.remove(i)
	}
	q.changed(q.remainingLocked())
	return true
}

// isRunning reports whether a prompt with the id is running.
func (q *queue) isRunning(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.ContainsFunc(q.running, func(it *item) bool { return it.id == id })
}

// snapshot returns the running and the pending items, the latter in heap order.
func (q *queue) snapshot() (running, pending []*item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.running), slices.Clone([]*item(q.pending))
}

// request asks the worker to free memory.
func (q *queue) request(unload, free bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.unload = q.unload || unload
	q.free = q.free || free
	q.wake.Signal()
}

// requested returns and clears the pending requests.
func (q *queue) requested() (unload, free bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	unload, free = q.unload || q.free, q.free
	q.unload, q.free = false, false
	return unload, free
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wake.Broadcast()
}

// entry returns the history of one prompt.
func (q *queue) entry(id string) (*pyjson.Object, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	o := q.history.Object(id)
	return o, o != nil
}

// noLimit asks page for everything.
const noLimit = math.MinInt

// page returns a part of the history, oldest first. A negative maximum other than
// noLimit means none. A negative offset means the newest ones.
func (q *queue) page(maxItems, offset int) *pyjson.Object {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := &pyjson.Object{}
	if offset < 0 && maxItems != noLimit {
		offset = q.history.Len() - maxItems
	}
	i := 0
	for id, entry := range q.history.All() {
		if i >= offset && (maxItems == noLimit || out.Len() < maxItems) {
			out.Set(id, entry)
		}
		i++
	}
	return out
}

func (q *queue) forget(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.history.Delete(id)
}

func (q *queue) forgetAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.history = &pyjson.Object{}
}

// tuple returns the item as GET /queue and the history show it.
func (it *item) tuple(extra *pyjson.Object) pyjson.Array {
	return list(it.number, it.id, it.graph, extra, it.outputs)
}

// publicExtra returns extra_data without the secrets.
func (it *item) publicExtra() *pyjson.Object {
	out := &pyjson.Object{}
	for key, v := range it.extra.All() {
		if key != "auth_token_comfy_org" && key != "api_key_comfy_org" {
			out.Set(key, v)
		}
	}
	return out
}
