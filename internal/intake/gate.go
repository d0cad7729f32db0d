package intake

import (
	"context"
	"runtime/debug"
	"sync"
	"time"
)

const (
	// smallWeight is the largest weight of a body for the lane of small bodies,
	// which never wait behind large ones.
	smallWeight = 16 << 20
	// smallPart is the fraction of the memory reserved for small bodies.
	smallPart = 4
	// shareWaiting bounds the bodies of one sender that wait for memory, and
	// maxWaiting those of all.
	shareWaiting = 256
	maxWaiting   = 2048
	// tidyAfter is how long no large body must have been parsed before memory is
	// returned to the system, and tidyEvery the shortest time between two such
	// returns: each costs a garbage collection.
	tidyAfter = 2 * time.Second
	tidyEvery = 10 * time.Second
)

// gate hands out memory for parsing bodies. It has two lanes, for small and for
// large bodies; in each, the senders take turns.
type gate struct{ small, large lane }

func (g *gate) resize(memory int64) {
	g.small.resize(memory / smallPart)
	g.large.resize(memory - memory/smallPart)
	g.large.tidy = true
}

// enter waits for memory; leave releases it. Errors: ErrBusy.
func (g *gate) enter(ctx context.Context, share string, weight int64, wait time.Duration) (leave func(), err error) {
	l := &g.large
	if weight <= smallWeight {
		l = &g.small
	}
	return l.enter(ctx, share, weight, wait)
}

// lane is an amount of memory and the queue for it.
type lane struct {
	tidy bool

	mu     sync.Mutex
	limit  int64
	used   int64
	of     map[string]int64
	queues map[string][]*waiter
	turns  []string // waiting senders, the next one first
	count  int      // of all waiters
	timer  *time.Timer
	idle   time.Time // the time since which it has been unused
	tidied time.Time
}

type waiter struct {
	weight int64
	ready  chan struct{}
}

func (l *lane) resize(limit int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit = limit
	l.admit()
}

func (l *lane) enter(ctx context.Context, share string, weight int64, wait time.Duration) (func(), error) {
	l.mu.Lock()
	// A body that is larger than all memory is parsed alone.
	w := &waiter{weight: min(weight, l.limit), ready: make(chan struct{})}
	if l.count >= maxWaiting || len(l.queues[share]) >= shareWaiting {
		l.mu.Unlock()
		return nil, ErrBusy
	}
	if l.queues == nil {
		l.queues, l.of = map[string][]*waiter{}, map[string]int64{}
	}
	if len(l.queues[share]) == 0 {
		l.turns = append(l.turns, share)
	}
	l.queues[share] = append(l.queues[share], w)
	l.count++
	l.admit()
	l.mu.Unlock()

	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-w.ready:
	case <-ctx.Done():
		return nil, l.giveUp(share, w, ctx.Err())
	case <-timer.C:
		return nil, l.giveUp(share, w, ErrBusy)
	}
	return sync.OnceFunc(func() { l.leave(share, w.weight) }), nil
}

// admit admits waiters while there is memory for them. A sender that holds half of
// it lets others go first, but may use memory that nobody else wants.
func (l *lane) admit() {
	for n := 0; n < len(l.turns); {
		share := l.turns[n]
		w := l.queues[share][0]
		if l.of[share] > 0 && l.of[share]+w.weight > l.limit/2 {
			n++
			continue
		}
		if l.used+w.weight > l.limit {
			return // later ones must not overtake it for ever
		}
		l.used += w.weight
		l.of[share] += w.weight
		l.drop(share, 0)
		close(w.ready)
		n = 0
	}
}

// drop removes a waiter from its queue and moves its sender to the end of the
// turns.
func (l *lane) drop(share string, at int) {
	queue := l.queues[share]
	queue = append(queue[:at:at], queue[at+1:]...)
	l.count--
	for n, s := range l.turns {
		if s == share {
			l.turns = append(l.turns[:n], l.turns[n+1:]...)
			break
		}
	}
	if len(queue) == 0 {
		delete(l.queues, share)
		return
	}
	l.queues[share] = queue
	l.turns = append(l.turns, share)
}

// giveUp removes a waiter, or releases what it was given just now.
func (l *lane) giveUp(share string, w *waiter, reason error) error {
	l.mu.Lock()
	for n, other := range l.queues[share] {
		if other == w {
			l.drop(share, n)
			l.admit()
			l.mu.Unlock()
			return reason
		}
	}
	l.mu.Unlock()
	l.leave(share, w.weight)
	return reason
}

func (l *lane) leave(share string, weight int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used -= weight
	if l.of[share] -= weight; l.of[share] <= 0 {
		delete(l.of, share)
	}
	l.admit()
	if l.tidy && l.used == 0 {
		l.idle = time.Now()
		if l.timer == nil {
			l.timer = time.AfterFunc(max(tidyAfter, tidyEvery-time.Since(l.tidied)), l.tidyUp)
		}
	}
}

// tidyUp returns memory to the system. The runtime keeps freed memory for minutes,
// and lets garbage grow in proportion to what was last alive: after some large
// bodies that is most of a small machine's memory. It stops everything for a
// moment, so it does not run between the bodies of a series.
func (l *lane) tidyUp() {
	l.mu.Lock()
	l.timer = nil
	if l.used > 0 {
		l.mu.Unlock()
		return // the last one to leave returns here
	}
	if idle := time.Since(l.idle); idle < tidyAfter {
		l.timer = time.AfterFunc(tidyAfter-idle, l.tidyUp)
		l.mu.Unlock()
		return
	}
	l.tidied = time.Now()
	l.mu.Unlock()
	debug.FreeOSMemory()
}
