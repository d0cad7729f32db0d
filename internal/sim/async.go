package sim

import (
	"context"
	"sync"
	"time"
)

// eventLoop makes the async nodes of a run take turns the way Python's event loop
// does: one at a time, the earliest due first. Nodes that are due at the same time
// run in the order in which they went to sleep.
type eventLoop struct {
	clock Clock

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at each change
	now      time.Duration // simulated, since the first node started
	busy     bool
	seq      int
	sleepers map[*sleeper]bool
}

type sleeper struct {
	due time.Duration
	seq int
}

func newEventLoop(c Clock) *eventLoop {
	return &eventLoop{clock: c, changed: make(chan struct{}), sleepers: map[*sleeper]bool{}}
}

func (l *eventLoop) notifyLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// sleep waits for a simulated duration and then for its turn. The caller runs alone
// until it sleeps again or leaves. joining means that it has not run yet.
func (l *eventLoop) sleep(ctx context.Context, d time.Duration, joining bool) error {
	me := l.lieDown(d, joining)
	err := l.clock.Sleep(ctx, d)
	l.mu.Lock()
	defer l.mu.Unlock()
	for err == nil && (l.busy || l.firstLocked() != me) {
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-changed:
		}
		l.mu.Lock()
	}
	delete(l.sleepers, me)
	if err != nil {
		l.notifyLocked()
		return err
	}
	l.now, l.busy = me.due, true
	return nil
}

func (l *eventLoop) lieDown(d time.Duration, joining bool) *sleeper {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !joining {
		l.busy = false
	}
	me := &sleeper{due: l.now + d, seq: l.seq}
	l.seq++
	l.sleepers[me] = true
	l.notifyLocked()
	return me
}

func (l *eventLoop) firstLocked() *sleeper {
	var first *sleeper
	for s := range l.sleepers {
		if first == nil || s.due < first.due || s.due == first.due && s.seq < first.seq {
			first = s
		}
	}
	return first
}

// leave ends the turn of a finished node.
func (l *eventLoop) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy = false
	l.notifyLocked()
}
