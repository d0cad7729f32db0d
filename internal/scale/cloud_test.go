package scale

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// cloud is a provider, its machines, and the queue of their jobs.
type cloud struct {
	t    *testing.T
	take time.Duration // of a start
	// dud says whether a start fails, by its number. call is called before and after a call has
	// taken effect, and may end it.
	dud  func(n int) bool
	call func(ctx context.Context, taken bool) error

	mu       sync.Mutex
	machines map[string]*vm
	number   int
	most     int
	calls    []Change
	by       map[string]Change
	line     []time.Duration
	done     int
	seconds  int
}

// vm is a machine.
type vm struct {
	up      time.Time // when it joins
	dud     bool
	stopped bool
	until   time.Time // it works
	moved   int64
}

func newCloud(t *testing.T) *cloud {
	return &cloud{t: t, take: 40 * time.Second, machines: map[string]*vm{}, by: map[string]Change{}}
}

func (m *vm) there(now time.Time) bool { return !m.dud && !now.Before(m.up) }

// post adds jobs to the queue.
func (c *cloud) post(n int, takes time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		c.line = append(c.line, takes)
	}
}

// run gives jobs to idle machines until the context ends.
func (c *cloud) run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		c.second(time.Now())
	}
}

func (c *cloud) second(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.most, c.seconds = max(c.most, len(c.machines)), c.seconds+len(c.machines)
	for _, m := range c.machines {
		if !m.there(now) || m.until.After(now) {
			continue
		}
		if !m.until.IsZero() {
			c.done++
			m.until, m.moved = time.Time{}, now.UnixMilli()
		}
		if !m.stopped && len(c.line) > 0 {
			m.until, m.moved, c.line = now.Add(c.line[0]), now.UnixMilli(), c.line[1:]
		}
	}
}

// Look implements Fleet.
func (c *cloud) Look(_ context.Context, classes []Class) (map[string]View, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	v := View{Waiting: slices.Clone(c.line)}
	for name, m := range c.machines {
		if m.there(now) {
			v.Instances = append(v.Instances, Instance{Name: name, Works: true, Stopped: m.stopped, Busy: !m.until.IsZero(), Left: max(m.until.Sub(now), 0), Moved: m.moved})
		}
	}
	return map[string]View{classes[0].Name: v}, nil
}

// Drain implements Fleet.
func (c *cloud) Drain(_ context.Context, instance string, on bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.machines[instance]; m != nil {
		m.stopped = on
	}
	return nil
}

// Set implements Provider. It takes nothing for granted.
func (c *cloud) Set(ctx context.Context, change Change) error {
	if c.call != nil {
		if err := c.call(ctx, false); err != nil {
			return err
		}
	}
	c.take1(change)
	if c.call != nil {
		return c.call(ctx, true)
	}
	return nil
}

func (c *cloud) take1(change Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before, again := c.by[change.ID]; again && !reflect.DeepEqual(before, change) {
		c.t.Errorf("%s means two things: %+v and %+v", change.ID, before, change)
	}
	c.by[change.ID] = change
	c.calls = append(c.calls, change)
	for _, name := range change.Remove {
		m := c.machines[name]
		if m != nil && (!m.until.IsZero() || !m.stopped && m.there(time.Now())) {
			c.t.Errorf("%s is removed, and works: %+v", name, change)
		}
		delete(c.machines, name)
	}
	for name, m := range c.machines { // too many: those that have not joined go
		if len(c.machines) > change.Wanted && !m.there(time.Now()) && !slices.Contains(change.Keep, name) {
			delete(c.machines, name)
		}
	}
	for len(c.machines) < change.Wanted {
		c.number++
		c.machines[fmt.Sprint("gpu-", c.number)] = &vm{up: time.Now().Add(c.take), dud: c.dud != nil && c.dud(c.number)}
	}
}

// left is how many jobs are not done.
func (c *cloud) left() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.line)
	for _, m := range c.machines {
		if !m.until.IsZero() {
			n++
		}
	}
	return n
}

func (c *cloud) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.machines)
}

// scaling is a hub that scales in a cloud; stop is its end, however sudden.
func (c *cloud) scaling(db *redis.DB, hub string, class Class) (s *Scaler, stop func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	s = New(Options{DB: db, Hub: hub, Fleet: c, Classes: func() []Class { return []Class{class} }, Log: func() *slog.Logger { return slog.New(slog.DiscardHandler) }})
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	return s, func() { cancel(); running.Wait() }
}

// eventually waits until something is so.
func eventually(t *testing.T, within time.Duration, what string, is func() bool) {
	for end := time.Now().Add(within); !is(); {
		require.True(t, time.Now().Before(end), what)
		<-time.After(time.Second)
	}
}

func classOf(c *cloud) Class {
	return Class{Name: "gpu", Instances: []string{"gpu-*"}, Max: 5, IdleAfter: time.Minute, Price: 1, Provider: c}
}

var errCloud = errors.New("no machines today")
