package picture

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"sync"
)

const (
	// DefaultMemory is how many bytes pictures may take at one time.
	DefaultMemory = 768 << 20
	// smallCost is the most that a small picture takes, in bytes: enough for the
	// preview of 1.5 megapixels. Of the memory a part of smallShare is for small
	// ones only, which then never wait for large ones.
	smallCost  = 32 << 20
	smallShare = 6
	// releaseFrom is from how many bytes on the garbage of a picture is collected
	// and given back to the system before another one may begin.
	releaseFrom = 128 << 20

	maxWaiting = 4096 // in each lane
	maxOfOne   = 256  // of one caller
)

var (
	// ErrTooLarge says that a picture needs more memory than there is for all.
	ErrTooLarge = errors.New("picture: it needs too much memory")
	// ErrBusy says that too many wait already.
	ErrBusy = errors.New("picture: too many are waiting")
)

// Gate lets pictures be made one after the other, as memory and processors allow.
// Callers take turns, so that one with many pictures does not hold up another
// with one, and small pictures have a lane of their own, so that they do not wait
// for large ones.
type Gate struct {
	memory       func() int64
	small, large lane
	asked        lane
}

// NewGate makes a gate. memory says how many bytes there are, and may say another
// number later; nil, or 0, means DefaultMemory.
func NewGate(memory func() int64) *Gate {
	// Each picture takes one processor; some are left for everything else.
	slots := max(runtime.GOMAXPROCS(0)/2, 1)
	g := &Gate{memory: memory, small: lane{slots: slots}, large: lane{slots: max(slots-1, 1)}, asked: lane{slots: 4}}
	g.share()
	return g
}

// share gives the lanes their parts of the memory.
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

// Acquire waits for a turn to make a picture that costs so many bytes, until ctx
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
		if cost >= releaseFrom {
			debug.FreeOSMemory()
		}
		l.release(caller, cost)
	}, nil
}

// AcquireAsked waits for a turn to have a server make a picture: servers do so
// while everything else of theirs stands still.
func (g *Gate) AcquireAsked(ctx context.Context, caller string) (release func(), err error) {
	if err := g.asked.acquire(ctx, caller, 0); err != nil {
		return nil, err
	}
	return func() { g.asked.release(caller, 0) }, nil
}

// lane is a queue with a line for each caller. They take turns. The next one in
// turn waits until there is room for it, and nobody overtakes it.
type lane struct {
	memory int64 // bytes for all
	slots  int

	mu      sync.Mutex
	used    int64
	running int
	waiting int
	lines   map[string]*line
	turns   []*line // those with somebody waiting
}

type line struct {
	caller  string
	running int
	waiting []*ticket
}

type ticket struct {
	cost  int64
	ready chan struct{} // closed when it is its turn
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

// leave takes somebody who is gone out of the line. The lock is held.
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
	l.admit() // the next may fit where this one did not
}

// admit begins all turns that there is room for. A caller has at most half of
// the slots, so that another one does not wait for the end of a long turn. The
// lock is held.
func (l *lane) admit() {
	most := max((l.slots+1)/2, 1)
	for at := 0; at < len(l.turns); {
		own := l.turns[at]
		if own.running >= most {
			at++
			continue
		}
		t := own.waiting[0]
		// Where nothing else runs there is room for each: one that was let in
		// may wait while the memory becomes less.
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

// forget drops a line that nobody is in. The lock is held.
func (l *lane) forget(own *line) {
	if own.running == 0 && len(own.waiting) == 0 {
		delete(l.lines, own.caller)
	}
}
