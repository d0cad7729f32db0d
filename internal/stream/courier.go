package stream

import (
	"context"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/retry"
)

const (
	// letterBytes is about how much one letter holds.
	letterBytes = 256 << 10
	// depositBytes is the largest message that goes in a letter itself.
	depositBytes = 256 << 10
	// mailTimeout bounds one attempt to send a letter.
	mailTimeout = 10 * time.Second
	// Bounds of the pause before a letter is sent again.
	minMailPause = 50 * time.Millisecond
	maxMailPause = 2 * time.Second
)

// note is what a courier is told beside frames.
type note uint8

const (
	noteNone   note = iota
	noteLost        // the sequence was lost
	noteSynced      // all that is kept went before
	noteBeat        // nothing new
)

// courier brings what happens in one client's runs of this hub to the hub
// that has the client's socket. For the line it is the client's socket, one
// that gets everything at once. Only its own goroutine waits for the network.
type courier struct {
	streams *Streams
	key     Key
	home    Home
	session uint64
	wake    chan struct{}
	cancel  context.CancelFunc

	mu      sync.Mutex
	queue   queue
	full    bool // the network is slower than the runs
	closing bool // to end when all is sent

	// The goroutine's own.
	number uint64
	begun  map[uint64]bool
}

// newCourier makes a courier and sets it going.
func (s *Streams) newCourier(k Key, home Home) *courier {
	ctx, cancel := context.WithCancel(s.ctx)
	c := &courier{
		streams: s, key: k, home: home, session: s.sessions.Add(1),
		wake: make(chan struct{}, 1), cancel: cancel, begun: map[uint64]bool{},
	}
	c.queue.limit = s.o.SocketBytes
	s.spawn(func() {
		defer cancel()
		c.run(ctx)
	})
	return c
}

// push queues an item. It never blocks. A courier that has no room left takes
// nothing more: all is sent anew once the network is back.
func (c *courier) push(it item) {
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

// finish lets the courier end by itself when everything is sent.
func (c *courier) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = true
	c.signal()
}

func (c *courier) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run sends letters until ctx ends or there is nothing left to send.
func (c *courier) run(ctx context.Context) {
	defer func() { // gives up the files of what was not sent
		c.mu.Lock()
		defer c.mu.Unlock()
		c.closing = true
		c.queue.clear()
	}()
	for {
		events, full, over := c.next(ctx)
		if full {
			// What was queued is gone, but the line has all that counts.
			c.streams.change(c.key, false, func(cl *client) { cl.sendAgain(c.session) })
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

// next takes what a letter holds from the queue. over tells that nothing will
// follow.
func (c *courier) next(ctx context.Context) (events []event, full, over bool) {
	for size := 0; size < letterBytes; {
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

// eventsOf is an item as the other hub is told of it.
func (c *courier) eventsOf(ctx context.Context, it item) (events []event) {
	switch it.note {
	case noteSynced:
		return []event{{kind: eventSynced, floor: it.floor, jobs: it.jobs}}
	case noteBeat:
		return []event{{kind: eventBeat, floor: it.floor}}
	case noteNone, noteLost: // of a sequence, see below
	}
	q := it.of
	if q == nil || it.status {
		return nil
	}
	if !c.begun[q.id] {
		c.begun[q.id] = true
		events = append(events, event{kind: eventBegin, id: q.id, prompt: q.prompt, job: q.job, fence: q.fence, at: q.at})
	}
	switch {
	case it.note == noteLost:
		delete(c.begun, q.id)
		return append(events, event{kind: eventLost, id: q.id})
	case it.mark != 0:
		delete(c.begun, q.id)
		return append(events, event{kind: eventEnd, id: q.id, told: it.tells != 0})
	}
	e, ok := c.frameEvent(ctx, q, it.frame)
	if !ok {
		return events
	}
	return append(events, e)
}

// frameEvent is a message as an event. One that is too large for a letter is
// deposited, and the event has a reference only.
func (c *courier) frameEvent(ctx context.Context, q *sequence, f *frame) (e event, ok bool) {
	e = event{
		kind: eventFrame, id: q.id, n: f.n, final: f.final,
		message: Message{Kind: f.kind, Node: f.node, Binary: f.binary},
	}
	data, err := f.load()
	if err != nil {
		c.streams.o.Logger.Warn("a held result cannot be read", "error", err)
		return e, false
	}
	if len(data) <= depositBytes {
		e.message.Data = data
		return e, true
	}
	ok = c.retry(ctx, func(ctx context.Context) error {
		e.ref, err = c.streams.carrier.Deposit(ctx, data)
		return err
	})
	return e, ok
}

// send sends one letter until it has gone. It may arrive twice.
func (c *courier) send(ctx context.Context, events []event) bool {
	l := letter{
		kind: letterEvents, from: c.streams.self, k: c.key, home: c.home.Number,
		session: c.session, number: c.number, events: events,
	}
	c.number++
	text := l.appendTo(nil)
	return c.retry(ctx, func(ctx context.Context) error {
		return c.streams.carrier.Mail(ctx, c.home.Hub, text)
	})
}

// retry does something until it works; false when ctx ended before.
func (c *courier) retry(ctx context.Context, do func(context.Context) error) bool {
	err := retry.New(minMailPause, maxMailPause).Do(ctx, func(ctx context.Context) error {
		attempt, cancel := context.WithTimeout(ctx, mailTimeout)
		defer cancel()
		return do(attempt)
	}, func(error) bool { return true })
	return err == nil
}
