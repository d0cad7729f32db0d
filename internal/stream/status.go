package stream

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
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

	// turn belongs to whoever asks, or looks at the fields below. It is no mutex, because whoever waits
	// for it may leave.
	turn  *semaphore.Weighted
	known bool
	asked uint64 // the value of changed that n reflects
	n     int
}

// touch marks the known number as outdated.
func (t *tally) touch() { t.changed.Add(1) }

// read returns the number as of the last touch or later. If the request fails it
// returns the last known number, and does not ask again until the next touch: many
// sockets would otherwise queue up behind a dead Redis. The number is 0 if ctx ends before its turn.
func (t *tally) read(ctx context.Context) (int, error) {
	if err := t.turn.Acquire(ctx, 1); err != nil {
		return 0, err
	}
	defer t.turn.Release(1)
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

// version returns what read would reflect at best.
func (t *tally) version() uint64 { return t.changed.Load() }

// learn takes a number that was counted after the version was read. If something may have changed
// since, nobody knows which came first, and read asks.
func (t *tally) learn(version uint64, n int) {
	if !t.changed.CompareAndSwap(version, version+1) {
		t.touch()
		return
	}
	if !t.turn.TryAcquire(1) { // it is being asked, and the touch above makes it ask again
		return
	}
	defer t.turn.Release(1)
	t.known, t.asked, t.n = true, version+1, n
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
			tally:   tally{caller: caller, ask: c.ask, turn: semaphore.NewWeighted(1)},
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

// tell makes the sockets of a caller send a status.
func (c *callers) tell(caller string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if group := c.all[caller]; group != nil {
		group.tell()
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
	g.tell()
}

// tell makes the sockets send a status.
func (g *callerSockets) tell() {
	for w := range g.sockets {
		w.statusDue()
	}
}

// Statuses tell sockets how many jobs their callers have, as soon as that changes and no more often
// than needed.
type Statuses struct {
	callers callers
	// fanout sends a status when the listings change.
	fanout statusFanout
}

// Changed reports that the counts of these callers may have changed; without
// an argument, those of all callers.
func (s *Statuses) Changed(callers ...string) { s.callers.changed(callers) }

// JobChanged reports that a job of a caller has been queued, started or ended: that
// caller's count may have changed, and so has what listings show to the tenant.
// Empty names mean that any job of any tenant may have changed.
func (s *Statuses) JobChanged(tenant, caller string) {
	s.fanout.changed(tenant)
	if caller == "" {
		s.callers.changed(nil)
	} else {
		s.callers.changed([]string{caller})
	}
	s.fanout.tell(tenant)
}

// JobMoved is JobChanged for a change that leaves the count as it is.
func (s *Statuses) JobMoved(tenant, caller string) {
	s.fanout.changed(tenant)
	s.callers.tell(caller)
	s.fanout.tell(tenant)
}

// Counting takes the number of a caller's jobs from the reply to a change of it, so that no socket
// has to ask for it.
type Counting struct {
	callers *callers
	caller  string
	group   *callerSockets // nil if the caller has no socket here
	version uint64
}

// Counting must be called before the change is sent to the queue. The hint of this change must then
// be reported with JobMoved.
func (s *Statuses) Counting(caller string) Counting {
	s.callers.mu.Lock()
	defer s.callers.mu.Unlock()
	c := Counting{callers: &s.callers, caller: caller, group: s.callers.all[caller]}
	if c.group != nil {
		c.version = c.group.tally.version()
	}
	return c
}

// Counted takes the number right after the change.
func (c Counting) Counted(n int) {
	if c.group != nil {
		c.group.tally.learn(c.version, n)
	}
}

// Tell sends a status to all sockets of the caller, after the messages that led to it.
func (c Counting) Tell() {
	c.callers.mu.Lock()
	defer c.callers.mu.Unlock()
	switch group := c.callers.all[c.caller]; {
	case group == nil:
	case group == c.group:
		group.tell()
	default: // it was opened since, and may have asked before the change
		group.changed()
	}
}
