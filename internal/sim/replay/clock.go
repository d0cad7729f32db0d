package replay

import (
	"context"
	"sync"
	"time"
)

// Clock is simulated time that stands still until it is advanced. Each simulated
// instance has its own [Face] of it.
type Clock struct {
	mu      sync.Mutex
	now     time.Duration
	waiting []*alarm // in the order they went to sleep
}

type alarm struct {
	due  time.Duration
	face *Face
	wake chan struct{}
}

// Face is the clock as one instance sees it. It implements the simulator's Clock.
type Face struct{ clock *Clock }

// Face returns a new face of the clock.
func (c *Clock) Face() *Face { return &Face{c} }

// Sleep waits until the clock has advanced by d. It returns early, with an error,
// if ctx ends.
func (f *Face) Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	c := f.clock
	c.mu.Lock()
	a := &alarm{due: c.now + d, face: f, wake: make(chan struct{})}
	c.waiting = append(c.waiting, a)
	c.mu.Unlock()
	select {
	case <-ctx.Done():
		c.mu.Lock()
		c.removeLocked(a)
		c.mu.Unlock()
		return ctx.Err()
	case <-a.wake:
		return nil
	}
}

// Sleepers returns the number of sleepers on this face.
func (f *Face) Sleepers() int {
	f.clock.mu.Lock()
	defer f.clock.mu.Unlock()
	n := 0
	for _, a := range f.clock.waiting {
		if a.face == f {
			n++
		}
	}
	return n
}

func (c *Clock) removeLocked(a *alarm) {
	for i, w := range c.waiting {
		if w == a {
			c.waiting = append(c.waiting[:i], c.waiting[i+1:]...)
			return
		}
	}
}

// time returns the simulated time since the clock was created.
func (c *Clock) time() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// wakeFirst advances time until the next sleeper wakes, but not beyond limit. It
// reports whether there was one.
func (c *Clock) wakeFirst(limit time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var first *alarm
	for _, a := range c.waiting {
		if first == nil || a.due < first.due {
			first = a
		}
	}
	if first == nil || first.due > limit {
		return false
	}
	c.removeLocked(first)
	c.now = max(c.now, first.due)
	close(first.wake)
	return true
}

// advance advances the clock when there is nobody to wake.
func (c *Clock) advance(to time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = max(c.now, to)
}
