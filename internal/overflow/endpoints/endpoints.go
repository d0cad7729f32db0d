// Package endpoints keeps the serverless endpoints of a hub open: each as so many instances of the
// fleet as it may have runs at one time.
package endpoints

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/direct"
	"github.com/comfyhub/comfyhub/internal/facade"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/overflow"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
)

const (
	// bookEvery is how often it is read what all hubs know of runs at endpoints, and sweepEvery how
	// often those are ended that nobody wants any more.
	bookEvery, sweepEvery = 2 * time.Second, 10 * time.Second
	// forgetEvery is how often old runs are forgotten, also those at endpoints that no hub has any more.
	forgetEvery = time.Hour
	// MaxSlots bounds the runs at an endpoint at one time.
	MaxSlots = 64
	// Most bounds the endpoints.
	Most = 16
)

// Options are what endpoints need of a hub.
type Options struct {
	DB      *redis.DB
	Queue   *queue.Queue
	Fleet   *fleet.Registry
	Library *catalog.Library
	// Folders are for the files of runs.
	Folders facade.Folders
	// Infos describe what the instances of the fleet can run, and Version is their version of ComfyUI.
	Infos   func() map[string]*catalog.Info
	Version func() comfyui.Version
	Log     func() *slog.Logger
}

// Endpoints are the serverless endpoints. They are safe for concurrent use.
type Endpoints struct {
	o    Options
	book *overflow.Book
	ctx  context.Context
	quit context.CancelFunc
	work sync.WaitGroup
	// begin begins to keep up with the other hubs, when there is an endpoint for the first time.
	begin func()

	mu  sync.Mutex
	all []*openEndpoint
}

// openEndpoint is an endpoint in use.
type openEndpoint struct {
	*overflow.Endpoint

	settings config.Overflow
	info     *catalog.Info
	slots    map[string]*overflow.Slot // by instance
	stop     context.CancelFunc
	work     sync.WaitGroup
}

// New returns no endpoints: Apply says which there are.
func New(o Options) *Endpoints {
	ctx, quit := context.WithCancel(context.Background())
	s := &Endpoints{o: o, book: overflow.NewBook(o.DB), ctx: ctx, quit: quit}
	s.begin = sync.OnceFunc(func() {
		_ = s.book.Refresh(ctx) // else it is read in a moment
		s.work.Go(s.tend)
	})
	s.work.Go(s.forget)
	return s
}

// forget forgets old runs, until the hub closes.
func (s *Endpoints) forget() {
	tick := time.NewTicker(forgetEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
		_ = panics.Do(s.o.Log(), "forgetting old runs at endpoints", func() error {
			if s.book.Refresh(s.ctx) != nil {
				return nil // it is tried again in an hour, as is what follows
			}
			_ = s.book.Forget(s.ctx, func(key string) bool { return s.fate("", key) == overflow.Ended })
			return nil
		})
	}
}

// Apply uses exactly the given endpoints. One that has changed is closed, and its runs go on at the
// next one of its name.
func (s *Endpoints) Apply(wanted []config.Overflow) error {
	if len(wanted) > 0 {
		s.begin()
	}
	kept := s.take(func(e *openEndpoint) bool {
		return slices.ContainsFunc(wanted, func(o config.Overflow) bool { return reflect.DeepEqual(o, e.settings) }) //nolint:govet // no errors are in it
	})
	var errs []error
	for _, o := range wanted {
		if slices.ContainsFunc(kept, func(e *openEndpoint) bool { return e.settings.Name == o.Name }) {
			continue
		}
		e, err := s.use(o)
		if err != nil {
			errs = append(errs, fmt.Errorf("overflow %s: %w", o.Name, err))
			continue
		}
		kept = append(kept, e)
		s.mu.Lock()
		s.all = slices.Clone(kept)
		s.mu.Unlock()
	}
	return errors.Join(errs...)
}

// take ends the use of the endpoints that are not to be kept, and returns the others. Nobody waits for
// that: an endpoint or a Redis that hangs may hold it up.
func (s *Endpoints) take(keep func(*openEndpoint) bool) (kept []*openEndpoint) {
	s.mu.Lock()
	before := s.all
	for _, e := range before {
		if keep(e) {
			kept = append(kept, e)
		}
	}
	s.all = slices.Clone(kept)
	s.mu.Unlock()
	for _, e := range before {
		if !slices.Contains(kept, e) {
			s.close(e)
		}
	}
	return kept
}

// use begins to use an endpoint.
func (s *Endpoints) use(o config.Overflow) (*openEndpoint, error) {
	remote, err := o.Remote()
	if err != nil {
		return nil, err
	}
	e := &openEndpoint{settings: o, slots: map[string]*overflow.Slot{}}
	info := o.ObjectInfo
	if len(info) > 0 {
		if e.info, err = s.o.Library.Parse(info); err != nil {
			return nil, fmt.Errorf("object_info: %w", err)
		}
	}
	e.Endpoint = overflow.New(overflow.Options{
		Name: o.Name, Remote: remote, Price: o.Price, Budget: o.Budget, Timeout: o.Timeout, Inputs: o.Inputs, Secrets: o.Secrets,
		ObjectInfo: info, IsOutput: s.isOutput(e), FilesFrom: o.FilesFrom, Egress: o.Egress, Tenant: s.tenantOf, Book: s.book,
		Log: s.o.Log(), Version: direct.Version(s.o.Version()).Text,
	})
	var ctx context.Context
	ctx, e.stop = context.WithCancel(s.ctx)
	if o.Max > MaxSlots {
		return nil, fmt.Errorf("more than %d runs at one time", MaxSlots)
	}
	for n := range o.Max {
		name := fleet.OverflowName(o.Name, n+1)
		dir, err := s.o.Folders.Make()
		if err == nil {
			e.slots[name], err = e.Open(dir)
		}
		if err != nil {
			delete(e.slots, name)
			s.close(e)
			return nil, err
		}
		s.o.Fleet.AddOverflow(name)
		slot := e.slots[name]
		e.work.Go(func() { direct.WatchFacade(ctx, s.o.Fleet, fleet.KindOverflow, name, slot.Dial, s.o.Log()) })
	}
	e.work.Go(func() { e.Run(ctx) })
	return e, nil
}

// close ends the use of an endpoint.
func (s *Endpoints) close(e *openEndpoint) {
	e.stop()
	for name, slot := range e.slots {
		s.o.Fleet.RemoveStatic(name)
		slot.Close()
	}
	e.work.Wait()
}

// Dialer connects to a slot.
func (s *Endpoints) Dialer(name string) direct.Dial {
	return direct.Late(func() direct.Dial {
		for _, e := range s.open() {
			if slot := e.slots[name]; slot != nil {
				return slot.Dial
			}
		}
		return nil
	})
}

// tend keeps up with the other hubs, and ends runs that nobody wants, until the hub closes.
func (s *Endpoints) tend() {
	tick := time.NewTicker(bookEvery)
	defer tick.Stop()
	swept := time.Now()
	for {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
		_ = panics.Do(s.o.Log(), "keeping up with endpoints", func() error {
			before := s.book.Empty()
			if err := s.book.Refresh(s.ctx); err != nil || before && s.book.Empty() {
				return nil //nolint:nilerr // the next one reads it
			}
			if time.Since(swept) >= sweepEvery {
				swept = time.Now()
				s.sweep()
			}
			return nil
		})
	}
}

// sweep ends the runs of jobs that have ended, or that run elsewhere.
func (s *Endpoints) sweep() {
	for _, e := range s.open() {
		err := e.Sweep(s.ctx, func(key string) overflow.Fate { return s.fate(e.settings.Name, key) })
		if err != nil && s.ctx.Err() == nil {
			s.o.Log().Warn("cannot end runs at an endpoint", "endpoint", e.settings.Name, "error", err)
		}
	}
}

// fate is what has become of a job that has a run at an endpoint.
func (s *Endpoints) fate(endpoint, key string) overflow.Fate {
	j, err := s.o.Queue.Get(s.ctx, key)
	switch {
	case errors.Is(err, queue.ErrNotFound):
		return overflow.Ended
	case err != nil, j.State == job.Queued: // with an error, it is looked at again
		return overflow.Wanted
	case j.State != job.Leased && j.State != job.Running:
		return overflow.Ended
	case fleet.IsOverflow(endpoint, j.Run.Instance):
		return overflow.Wanted
	}
	return overflow.Elsewhere
}

// open returns the endpoints in use.
func (s *Endpoints) open() []*openEndpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// Close ends the use of all endpoints. What runs there goes on.
func (s *Endpoints) Close() {
	s.quit()
	s.work.Wait()
	s.take(func(*openEndpoint) bool { return false })
}
