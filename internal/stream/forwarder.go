package stream

import (
	"context"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/retry"
)

const (
	// batchBytes is roughly how many bytes of events one message to another hub holds.
	batchBytes = 256 << 10
	// inlineBytes is the largest client message that is sent inside a message to
	// another hub. Larger ones are stored as blobs.
	inlineBytes = 256 << 10
	// sendTimeout bounds one attempt to send a message.
	sendTimeout = 10 * time.Second
	// Bounds of the pause before a message is sent again.
	minSendPause = 50 * time.Millisecond
	maxSendPause = 2 * time.Second
)

// control is what a forwarder's queue holds besides frames.
type control uint8

const (
	controlNone      control = iota
	controlLost              // the sequence was lost
	controlSynced            // everything that is kept has been queued
	controlHeartbeat         // nothing new
)

// forwarder sends the events of one client's runs on this hub to the hub that owns
// the client. To the line it is the client's socket, one that takes everything at
// once. Only its own goroutine waits for the network.
type forwarder struct {
	network *network
	again   func(session uint64) // sends everything that is kept again
	key     Key
	owner   Owner
	session uint64
	wake    chan struct{}
	cancel  context.CancelFunc

	mu      sync.Mutex
	queue   queue
	full    bool // the network is slower than the runs
	closing bool // end once everything is sent

	// Used by the forwarder's goroutine only.
	number uint64
	begun  map[uint64]bool
}

// newForwarder starts a forwarder.
func (n *network) newForwarder(k Key, owner Owner, again func(session uint64)) *forwarder {
	ctx, cancel := context.WithCancel(n.ctx)
	c := &forwarder{
		network: n, again: again, key: k, owner: owner, session: n.sessions.Add(1),
		wake: make(chan struct{}, 1), cancel: cancel, begun: map[uint64]bool{},
	}
	c.queue.limit = n.queueBytes
	n.spawn(func() {
		defer cancel()
		c.run(ctx)
	})
	return c
}

// push queues an item without blocking. Once the queue is full the forwarder
// accepts nothing more: everything is sent again when the network has recovered.
func (c *forwarder) push(it item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full || c.closing {
		return
	}
	if !c.queue.push(it) {
		c.full = true
		c.queue.clear()
	}
	c.signal()
}

// finish lets the forwarder end once everything is sent.
func (c *forwarder) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = true
	c.signal()
}

func (c *forwarder) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run sends messages until ctx ends or nothing is left to send.
func (c *forwarder) run(ctx context.Context) {
	defer func() { // releases the files of what was not sent
		c.mu.Lock()
		defer c.mu.Unlock()
		c.closing = true
		c.queue.clear()
	}()
	for {
		events, full, over := c.next(ctx)
		if full {
			// The queue was dropped, but the line still has everything that
			// matters.
			c.again(c.session)
			return
		}
		if len(events) > 0 && !c.send(ctx, events) {
			return
		}
		if over {
			return
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
	}
}

// next takes up to one message's worth of events from the queue. over reports that
// nothing will follow.
func (c *forwarder) next(ctx context.Context) (events []runEvent, full, over bool) {
	for size := 0; size < batchBytes; {
		c.mu.Lock()
		it, ok := c.queue.pop()
		full, over = c.full, c.closing
		c.mu.Unlock()
		if !ok || full {
			return events, full, over
		}
		added := c.eventsOf(ctx, it)
		it.release()
		for i := range added {
			size += 64 + len(added[i].message.Data)
		}
		events = append(events, added...)
	}
	return events, false, false
}

// eventsOf converts an item into events for the other hub.
func (c *forwarder) eventsOf(ctx context.Context, it item) (events []runEvent) {
	switch it.control {
	case controlSynced:
		return []runEvent{{kind: runSynced, floor: it.floor, jobs: it.jobs}}
	case controlHeartbeat:
		return []runEvent{{kind: runHeartbeat, floor: it.floor}}
	case controlNone, controlLost: // these belong to a sequence, see below
	}
	q := it.of
	if q == nil || it.status {
		return nil
	}
	if !c.begun[q.id] {
		c.begun[q.id] = true
		events = append(events, runEvent{kind: runBegin, id: q.id, prompt: q.prompt, job: q.job, fence: q.fence, at: q.at})
	}
	switch {
	case it.control == controlLost:
		delete(c.begun, q.id)
		return append(events, runEvent{kind: runLost, id: q.id})
	case it.mark != 0:
		delete(c.begun, q.id)
		return append(events, runEvent{kind: runEnd, id: q.id, told: it.tells != 0})
	}
	e, ok := c.frameEvent(ctx, q, it.frame)
	if !ok {
		return events
	}
	return append(events, e)
}

// frameEvent converts a frame into an event. Data that is too large for a message
// is stored as a blob, and the event refers to it.
func (c *forwarder) frameEvent(ctx context.Context, q *sequence, f *frame) (e runEvent, ok bool) {
	e = runEvent{
		kind: runFrame, id: q.id, n: f.n, final: f.final,
		message: Message{Kind: f.kind, Node: f.node, Binary: f.binary},
	}
	data, err := f.load()
	if err != nil {
		c.network.log.Warn("a held result cannot be read", "error", err)
		return e, false
	}
	if len(data) <= inlineBytes {
		e.message.Data = data
		return e, true
	}
	ok = c.retry(ctx, func(ctx context.Context) error {
		e.ref, err = c.network.transport.PutBlob(ctx, data)
		return err
	})
	return e, ok
}

// send retries one message until it is sent. It may arrive twice.
func (c *forwarder) send(ctx context.Context, events []runEvent) bool {
	l := peerMessage{
		kind: peerEvents, from: c.network.self, k: c.key, owner: c.owner.Number,
		session: c.session, number: c.number, events: events,
	}
	c.number++
	text := l.appendTo(nil)
	return c.retry(ctx, func(ctx context.Context) error {
		return c.network.transport.Send(ctx, c.owner.Hub, text)
	})
}

// retry calls do until it succeeds; it returns false if ctx ends first.
func (c *forwarder) retry(ctx context.Context, do func(context.Context) error) bool {
	err := retry.New(minSendPause, maxSendPause).Do(ctx, func(ctx context.Context) error {
		attempt, cancel := context.WithTimeout(ctx, sendTimeout)
		defer cancel()
		return do(attempt)
	}, func(error) bool { return true })
	return err == nil
}
