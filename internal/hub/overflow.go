package hub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/overflow"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/queue"
)

const (
	// bookEvery is how often it is read what all hubs know of runs at endpoints, and sweepEvery how
	// often those are ended that nobody wants any more.
	bookEvery, sweepEvery = 2 * time.Second, 10 * time.Second
	// MaxOverflowSlots bounds the runs at an endpoint at one time.
	MaxOverflowSlots = 64
	// MaxOverflows bounds the endpoints.
	MaxOverflows = 16
)

// overflows are the serverless endpoints. They are safe for concurrent use.
type overflows struct {
	hub     *Hub
	library *catalog.Library
	book    *overflow.Book
	ctx     context.Context
	quit    context.CancelFunc
	work    sync.WaitGroup
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

func newOverflows(h *Hub, library *catalog.Library) *overflows {
	ctx, quit := context.WithCancel(context.Background())
	s := &overflows{hub: h, library: library, book: overflow.NewBook(h.db), ctx: ctx, quit: quit}
	s.begin = sync.OnceFunc(func() {
		_ = s.book.Refresh(ctx) // else it is read in a moment
		s.work.Go(s.tend)
	})
	return s
}

// apply uses exactly the given endpoints. One that has changed is closed, and its runs go on at the
// next one of its name.
func (s *overflows) apply(wanted []config.Overflow) error {
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
		e, err := s.open(o)
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
func (s *overflows) take(keep func(*openEndpoint) bool) (kept []*openEndpoint) {
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

// open begins to use an endpoint.
func (s *overflows) open(o config.Overflow) (*openEndpoint, error) {
	remote, err := o.Remote()
	if err != nil {
		return nil, err
	}
	e := &openEndpoint{settings: o, slots: map[string]*overflow.Slot{}}
	info := o.ObjectInfo
	if len(info) > 0 {
		if e.info, err = s.library.Parse(info); err != nil {
			return nil, fmt.Errorf("object_info: %w", err)
		}
	}
	e.Endpoint = overflow.New(overflow.Options{
		Name: o.Name, Remote: remote, Price: o.Price, Budget: o.Budget, Timeout: o.Timeout, Inputs: o.Inputs, Secrets: o.Secrets,
		ObjectInfo: info, IsOutput: s.isOutput(e), FilesFrom: o.FilesFrom, Egress: o.Egress, Tenant: s.tenantOf, Book: s.book,
		Log: s.hub.log(), Version: s.hub.workers.version().Text,
	})
	var ctx context.Context
	ctx, e.stop = context.WithCancel(s.ctx)
	if o.Max > MaxOverflowSlots {
		return nil, fmt.Errorf("more than %d runs at one time", MaxOverflowSlots)
	}
	for n := range o.Max {
		name := fleet.OverflowName(o.Name, n+1)
		dir, err := s.hub.workers.folder()
		if err == nil {
			e.slots[name], err = e.Open(dir)
		}
		if err != nil {
			delete(e.slots, name)
			s.close(e)
			return nil, err
		}
		s.hub.fleet.AddOverflow(name)
		slot := e.slots[name]
		e.work.Go(func() { s.watch(ctx, name, slot) })
	}
	e.work.Go(func() { e.Run(ctx) })
	return e, nil
}

// close ends the use of an endpoint.
func (s *overflows) close(e *openEndpoint) {
	e.stop()
	for name, slot := range e.slots {
		s.hub.fleet.RemoveStatic(name)
		slot.Close()
	}
	e.work.Wait()
}

// watch tells the fleet about a slot.
func (s *overflows) watch(ctx context.Context, name string, slot *overflow.Slot) {
	client, err := comfyui.NewClient("http://overflow", comfyui.Options{UserAgent: userAgent, Dial: slot.Dial})
	if err != nil { // the address is a constant
		panic(err)
	}
	defer client.Close()
	comfyui.Watch(ctx, client, comfyui.WatchOptions{Logger: s.hub.log()}, func(o comfyui.Observation) {
		report := describe(name, name, o)
		report.Kind = fleet.KindOverflow
		s.hub.fleet.Observe(report)
	})
}

// dialer connects to a slot.
func (s *overflows) dialer(name string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		s.mu.Lock()
		var slot *overflow.Slot
		for _, e := range s.all {
			if e.slots[name] != nil {
				slot = e.slots[name]
			}
		}
		s.mu.Unlock()
		if slot == nil {
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		}
		return slot.Dial(ctx, network, address)
	}
}

// tend keeps up with the other hubs, and ends runs that nobody wants, until the hub closes.
func (s *overflows) tend() {
	tick := time.NewTicker(bookEvery)
	defer tick.Stop()
	swept := time.Now()
	for {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
		_ = panics.Do(s.hub.log(), "keeping up with endpoints", func() error {
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
func (s *overflows) sweep() {
	s.mu.Lock()
	all := slices.Clone(s.all)
	s.mu.Unlock()
	for _, e := range all {
		err := e.Sweep(s.ctx, func(key string) overflow.Fate {
			j, err := s.hub.queue.Get(s.ctx, key)
			switch {
			case errors.Is(err, queue.ErrNotFound):
				return overflow.Ended
			case err != nil, j.State == job.Queued: // with an error, it is looked at again
				return overflow.Wanted
			case j.State != job.Leased && j.State != job.Running:
				return overflow.Ended
			case fleet.IsOverflow(e.settings.Name, j.Run.Instance):
				return overflow.Wanted
			}
			return overflow.Elsewhere
		})
		if err != nil && s.ctx.Err() == nil {
			s.hub.log().Warn("cannot end runs at an endpoint", "endpoint", e.settings.Name, "error", err)
		}
	}
}

// shut ends the use of all endpoints. What runs there goes on.
func (s *overflows) shut() {
	if s == nil {
		return
	}
	s.quit()
	s.work.Wait()
	s.take(func(*openEndpoint) bool { return false })
}
