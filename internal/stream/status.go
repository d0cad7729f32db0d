package stream

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// countTimeout bounds one request for a count. While Redis is unavailable, sockets
// are sent the last known number instead of nothing.
const countTimeout = 2 * time.Second

// tally is the number of jobs of one caller. It is requested at most once for each
// possible change, however many sockets the caller has.
type tally struct {
	caller string
	ask    func(ctx context.Context, caller string) (int, error)
	// changed grows with each possible change.
	changed atomic.Uint64

	mu    sync.Mutex
	known bool
	asked uint64 // the value of changed that n reflects
	n     int
}

// touch marks the known number as outdated.
func (t *tally) touch() { t.changed.Add(1) }

// read returns the number as of the last touch or later. If the request fails it
// returns the last known number, and does not ask again until the next touch: many
// sockets would otherwise queue up behind a dead Redis.
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

// callers groups the sockets by the caller whose jobs their status counts.
type callers struct {
	ask func(ctx context.Context, caller string) (int, error)

	mu  sync.Mutex
	all map[string]*callerSockets
}

type callerSockets struct {
	tally   tally
	sockets map[*socket]struct{}
}

// join adds a socket and returns the tally of its caller.
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

// leave removes a socket.
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

// changed makes the sockets of the named callers send a status; of all callers if
// none is named.
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

// StatusChanged reports that the counts of these callers may have changed; without
// an argument, those of all callers.
func (s *Streams) StatusChanged(callers ...string) { s.callers.changed(callers) }

// JobChanged reports that a job of a caller has been queued, started or ended: that
// caller's count may have changed, and so has what listings show to the tenant.
// Empty names mean that any job of any tenant may have changed.
func (s *Streams) JobChanged(tenant, caller string) {
	s.fanout.changed(tenant)
	if caller == "" {
		s.callers.changed(nil)
	} else {
		s.callers.changed([]string{caller})
	}
	s.fanout.tell(tenant)
}
