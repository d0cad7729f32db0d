package picture

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

const (
	// DefaultMemory is how many bytes pictures may use at one time.
	DefaultMemory = 768 << 20
	// smallCost is the largest cost of a small picture, in bytes: enough for the
	// preview of 1.5 megapixels. A part of the memory, smallShare, is reserved for
	// small pictures, which therefore never wait for large ones.
	smallCost  = 32 << 20
	smallShare = 6
	// releaseFrom is the cost in bytes from which the garbage of a picture is
	// collected and returned to the system before another one may begin, and collectFrom
	// that of several small ones, from which theirs is collected: otherwise the garbage may
	// grow as large as everything that is alive.
	releaseFrom = 128 << 20
	collectFrom = 64 << 20

	maxWaiting = 4096 // in each lane
	maxOfOne   = 256  // per caller
)

var (
	// ErrTooLarge means that a picture needs more memory than there is in total.
	ErrTooLarge = errors.New("picture: it needs too much memory")
	// ErrBusy means that too many are already waiting.
	ErrBusy = errors.New("picture: too many are waiting")
)

// Gate limits how many pictures are made at one time, as memory and processors
// allow. Callers take turns, so that one with many pictures does not block another
// with one, and small pictures have a lane of their own, so that they do not wait
// for large ones.
type Gate struct {
	memory       func() int64
	small, large lane
	asked        lane
	heads        lane
	garbage      atomic.Int64 // the cost of the pictures since the last collection
}

// NewGate returns a gate. memory returns how many bytes there are, which may change
// later; nil, or 0, means DefaultMemory.
func NewGate(memory func() int64) *Gate {
	// Each picture uses one processor; some are left for everything else.
	slots := max(runtime.GOMAXPROCS(0)/2, 1)
	g := &Gate{memory: memory, small: lane{slots: slots}, large: lane{slots: max(slots-1, 1)}, asked: lane{slots: 4}, heads: lane{slots: 2}}
	g.share()
	return g
}

// share divides the memory between the lanes.
func (g *Gate) share() (small, large int64) {
	memory := int64(0)
	if g.memory != nil {
		memory = g.memory()
	}
	if memory <= 0 {
		memory = DefaultMemory
	}
	small = max(memory/smallShare, min(smallCost, memory/2))
	g.small.resize(small)
	g.large.resize(memory - small)
	return small, memory - small
}

// Acquire waits for a turn to make a picture that costs that many bytes, until ctx
// ends. release must be called when nothing of the picture is in use any more.
// Errors are ErrTooLarge, ErrBusy and that of ctx.
func (g *Gate) Acquire(ctx context.Context, caller string, cost int64) (release func(), err error) {
	small, large := g.share()
	l := &g.large
	switch {
	case cost <= min(smallCost, small):
		l = &g.small
	case cost > large:
		return nil, ErrTooLarge
	}
	if err := l.acquire(ctx, caller, cost); err != nil {
		return nil, err
	}
	return func() {
		g.collect(cost)
		l.release(caller, cost)
	}, nil
}

// collect collects the garbage of a picture, if it is much, or there is much of others.
func (g *Gate) collect(cost int64) {
	switch sum := g.garbage.Add(cost); {
	case cost >= releaseFrom:
		g.garbage.Store(0)
		debug.FreeOSMemory()
	case sum >= collectFrom:
		g.garbage.Store(0)
		runtime.GC()
	}
}

// AcquireHeader waits for a turn to read the header of a picture, which for some formats
// is most of the file, in memory. One caller has one turn at a time.
func (g *Gate) AcquireHeader(ctx context.Context, caller string) (release func(), err error) {
	if err := g.heads.acquire(ctx, caller, 0); err != nil {
		return nil, err
	}
	return func() { g.heads.release(caller, 0) }, nil
}

// AcquireAsked waits for a turn to have a server make a picture, which blocks that
// server completely.
func (g *Gate) AcquireAsked(ctx context.Context, caller string) (release func(), err error) {
	if err := g.asked.acquire(ctx, caller, 0); err != nil {
		return nil, err
	}
	return func() { g.asked.release(caller, 0) }, nil
}

// lane is a queue with a line for each caller. Callers take turns. The next one in
// turn waits until there is room for it, and nobody overtakes it.
type lane struct {
	memory int64 // bytes in total
	slots  int

	mu      sync.Mutex
	used    int64
	running int
	waiting int
	lines   map[string]*line
	turns   []*line // lines that are not empty
}

type line struct {
	caller  string
	running int
	waiting []*ticket
}

type ticket struct {
	cost  int64
	ready chan struct{} // closed when its turn has come
}

func (l *lane) acquire(ctx context.Context, caller string, cost int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	if l.lines == nil {
		l.lines = map[string]*line{}
	}
	own := l.lines[caller]
	if own == nil {
		own = &line{caller: caller}
		l.lines[caller] = own
	}
	if l.waiting >= maxWaiting || len(own.waiting) >= maxOfOne {
		l.forget(own)
		l.mu.Unlock()
		return ErrBusy
	}
	t := &ticket{cost, make(chan struct{})}
	own.waiting = append(own.waiting, t)
	l.waiting++
	if len(own.waiting) == 1 {
		l.turns = append(l.turns, own)
	}
	l.admit()
	l.mu.Unlock()
	select {
	case <-t.ready:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-t.ready: // just now
		l.done(own, cost)
	default:
		l.leave(own, t)
	}
	return ctx.Err()
}

func (l *lane) resize(memory int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.memory = memory
}

func (l *lane) release(caller string, cost int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done(l.lines[caller], cost)
}

// done ends a turn. The lock is held.
func (l *lane) done(own *line, cost int64) {
	l.used -= cost
	l.running--
	own.running--
	l.forget(own)
	l.admit()
}

// leave removes a ticket from its line. The lock is held.
func (l *lane) leave(own *line, t *ticket) {
	for n, other := range own.waiting {
		if other == t {
			own.waiting = append(own.waiting[:n], own.waiting[n+1:]...)
			l.waiting--
			break
		}
	}
	if len(own.waiting) == 0 {
		for n, other := range l.turns {
			if other == own {
				l.turns = append(l.turns[:n], l.turns[n+1:]...)
				break
			}
		}
		l.forget(own)
	}
	l.admit() // the next one may fit where this one did not
}

// admit starts all turns for which there is room. A caller has at most half of the
// slots, so that another one need not wait for the end of a long turn. The lock is
// held.
func (l *lane) admit() {
	most := max((l.slots+1)/2, 1)
	for at := 0; at < len(l.turns); {
		own := l.turns[at]
		if own.running >= most {
			at++
			continue
		}
		t := own.waiting[0]
		// If nothing else is running there is room for any picture, because the
		// memory may have been reduced while it waited.
		if l.running >= l.slots || l.running > 0 && l.used+t.cost > l.memory {
			return
		}
		l.used += t.cost
		l.running++
		own.running++
		own.waiting = own.waiting[1:]
		l.waiting--
		l.turns = append(l.turns[:at], l.turns[at+1:]...)
		if len(own.waiting) > 0 {
			l.turns = append(l.turns, own)
		}
		close(t.ready)
	}
}

// forget drops an empty line. The lock is held.
func (l *lane) forget(own *line) {
	if own.running == 0 && len(own.waiting) == 0 {
		delete(l.lines, own.caller)
	}
}
