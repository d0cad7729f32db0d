package sim

import (
	"context"
	"sync"
	"time"
)

// steppedClock stands still until a test lets time pass.
type steppedClock struct {
	mu      sync.Mutex
	now     time.Duration
	seq     int
	waiting []*alarm // in the order they went to sleep
}

type alarm struct {
	due  time.Duration
	wake chan struct{}
}

func (c *steppedClock) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	c.mu.Lock()
	a := &alarm{due: c.now + d, wake: make(chan struct{})}
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

func (c *steppedClock) removeLocked(a *alarm) {
	for i, w := range c.waiting {
		if w == a {
			c.waiting = append(c.waiting[:i], c.waiting[i+1:]...)
			return
		}
	}
}

// time returns the simulated time since the clock was made.
func (c *steppedClock) time() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// wakeFirst lets time pass until the next sleeper wakes, but not beyond limit.
// It reports whether there was one.
func (c *steppedClock) wakeFirst(limit time.Duration) bool {
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

// advance puts the clock forward when nobody is to be woken.
func (c *steppedClock) advance(to time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = max(c.now, to)
}
