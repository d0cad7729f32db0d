package stream

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// countTimeout bounds one question for a count. While Redis is away a socket
// is told the last known number instead of nothing.
const countTimeout = 2 * time.Second

// tally is the number of jobs of one caller, asked for at most once for each
// time that it may have changed, however many sockets the caller has.
type tally struct {
	caller string
	ask    func(ctx context.Context, caller string) (int, error)
	// changed grows with each possible change.
	changed atomic.Uint64

	mu    sync.Mutex
	known bool
	asked uint64 // the value of changed that n is as new as
	n     int
}

// touch makes the known number old.
func (t *tally) touch() { t.changed.Add(1) }

// read returns the number as of now or later than the last touch. When it
// cannot be had it is the last known one, and the question is not repeated
// until the next touch: with many sockets they would queue up behind a dead
// Redis.
func (t *tally) read(ctx context.Context) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed := t.changed.Load()
	if t.known && t.asked == changed {
		return t.n, nil
	}
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	n, err := t.ask(ctx, t.caller)
	if err == nil {
		t.n = n
	}
	t.known, t.asked = true, changed
	return t.n, err
}

// callers are the sockets by whose jobs their status counts.
type callers struct {
	ask func(ctx context.Context, caller string) (int, error)

	mu  sync.Mutex
	all map[string]*callerSockets
}

type callerSockets struct {
	tally   tally
	sockets map[*socket]struct{}
}

// join adds a socket and gives it the tally of its caller.
func (c *callers) join(caller string, w *socket) *tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = make(map[string]*callerSockets)
	}
	group := c.all[caller]
	if group == nil {
		group = &callerSockets{
			tally:   tally{caller: caller, ask: c.ask},
			sockets: make(map[*socket]struct{}),
		}
		c.all[caller] = group
	}
	group.sockets[w] = struct{}{}
	return &group.tally
}

// leave takes a socket away.
func (c *callers) leave(caller string, w *socket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	group := c.all[caller]
	if group == nil {
		return
	}
	delete(group.sockets, w)
	if len(group.sockets) == 0 {
		delete(c.all, caller)
	}
}

// changed makes the sockets of the named callers send a status; of all
// callers, if none is named.
func (c *callers) changed(names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(names) == 0 {
		for _, group := range c.all {
			group.changed()
		}
		return
	}
	for _, name := range names {
		if group := c.all[name]; group != nil {
			group.changed()
		}
	}
}

func (g *callerSockets) changed() {
	g.tally.touch()
	for w := range g.sockets {
		w.statusDue()
	}
}

// StatusChanged tells that the count of these callers may have changed; no
// caller at all means that of everyone.
func (s *Streams) StatusChanged(callers ...string) { s.callers.changed(callers) }

// JobChanged tells that a job of a caller waits, runs or has ended: the count of
// that caller may have changed, and so has what listings show to the tenant.
// Empty names mean that any job of any tenant may have changed.
func (s *Streams) JobChanged(tenant, caller string) {
	s.audiences.changed(tenant)
	if caller == "" {
		s.callers.changed(nil)
	} else {
		s.callers.changed([]string{caller})
	}
	s.audiences.tell(tenant)
}
