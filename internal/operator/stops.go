package operator

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/internal/dispatch"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// stopsEvery is the longest it takes until a hub sees what another one was told.
const stopsEvery = 2 * time.Second

// Stops follows what the operator has paused, at whichever hub. The queue stores it, so that it
// outlives hubs, and enforces it; a paused instance is a drained one.
type Stops struct {
	queue    *queue.Queue
	fleet    *fleet.Registry
	dispatch *dispatch.Dispatcher
	log      func() *slog.Logger

	// looking is held during a look, which uses due.
	looking *semaphore.Weighted
	// due has the deadlines, by this hub's clock: Redis's may be set forward meanwhile.
	due map[queue.Stop]deadline

	mu  sync.Mutex
	now map[queue.Stop]bool // not changed once it is here
	// next is when to look again, for a deadline; zero if there is none.
	next time.Time
}

// deadline is when work on a drained instance is taken back.
type deadline struct {
	stored int64
	at     time.Time
}

// Run looks from time to time until ctx ends.
func (s *Stops) Run(ctx context.Context) {
	for {
		if err := s.Look(ctx); err != nil && ctx.Err() == nil {
			s.log().Debug("cannot read what is paused", "error", err)
		}
		if !retry.Sleep(ctx, s.pause()) {
			return
		}
	}
}

// Look reads what is paused and acts on it.
func (s *Stops) Look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := s.looking.Acquire(ctx, 1); err != nil { // an older reading must not overwrite a newer one
		return err
	}
	defer s.looking.Release(1)
	now, err := s.queue.Stops(ctx)
	if err != nil {
		return err
	}
	for stop := range now {
		if name, ok := stop.Instance(); ok {
			s.fleet.SetDraining(name, true) // it may have come just now
		}
	}
	s.mu.Lock()
	before := s.now
	s.now = now
	s.mu.Unlock()
	for stop := range before {
		if name, ok := stop.Instance(); ok && !now[stop] {
			s.fleet.SetDraining(name, false)
			s.dispatch.Blame.Trust(name)
		}
	}
	if !maps.Equal(before, now) {
		s.dispatch.Wake()
	}
	next, err := s.evict(ctx, now)
	s.mu.Lock()
	s.next = next
	s.mu.Unlock()
	return err
}

// evict takes back what is running on instances that should have been free by now. It returns the next
// deadline.
func (s *Stops) evict(ctx context.Context, now map[queue.Stop]bool) (next time.Time, err error) {
	if !slices.ContainsFunc(slices.Collect(maps.Keys(now)), isInstance) {
		return next, nil
	}
	deadlines, err := s.queue.Deadlines(ctx)
	if err != nil {
		return next, err
	}
	due := make(map[queue.Stop]deadline, len(deadlines))
	for stop, d := range deadlines {
		known, seen := s.due[stop]
		if !seen || known.stored != d.At {
			known = deadline{d.At, time.Now().Add(d.Left)}
		}
		due[stop] = known
		name, ok := stop.Instance()
		switch {
		case !ok || !now[stop]:
		case !known.at.After(time.Now()):
			s.dispatch.Instances.Evict(name)
		case next.IsZero() || known.at.Before(next):
			next = known.at
		}
	}
	s.due = due
	return next, nil
}

func isInstance(stop queue.Stop) bool {
	_, ok := stop.Instance()
	return ok
}

// pause returns how long to wait before the next look.
func (s *Stops) pause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next.IsZero() {
		return stopsEvery
	}
	return min(stopsEvery, max(time.Until(s.next), 10*time.Millisecond))
}

// NewStops returns what is paused, once Run or Look has read it.
func NewStops(q *queue.Queue, f *fleet.Registry, d *dispatch.Dispatcher, log func() *slog.Logger) *Stops {
	return &Stops{looking: semaphore.NewWeighted(1), queue: q, fleet: f, dispatch: d, log: log}
}

// drain stops an instance; whatever is running there is taken back once the deadline is over.
func (s *Stops) drain(ctx context.Context, instance string, deadline time.Duration) error {
	if err := s.queue.Drain(ctx, instance, deadline); err != nil {
		return err
	}
	return s.Look(ctx)
}

// set pauses something or lets it go on, and returns once this hub acts on that. It reports whether
// anything has changed.
func (s *Stops) set(ctx context.Context, stop queue.Stop, on bool) (changed bool, err error) {
	if changed, err = s.queue.SetStop(ctx, stop, on); err != nil {
		return false, err
	}
	return changed, s.Look(ctx)
}

// Holds reports whether a tenant gets no more runs.
func (s *Stops) Holds(tenant string) bool {
	return s.Has(queue.StopAll) || s.Has(queue.StopTenant(tenant))
}

// Has reports whether something is paused.
func (s *Stops) Has(stop queue.Stop) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now[stop]
}
