package worker

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/direct"
	"github.com/comfyhub/comfyhub/internal/facade"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

const (
	// MaxOfMachine bounds the workers of a machine, and maxInAll those of the hub.
	MaxOfMachine, maxInAll = 32, 1000
	// maxInfo bounds what is kept about what the workers of a machine can run, in bytes.
	maxInfo = 64 << 20
	// kept is how long a worker is shown after it was last heard from.
	kept = time.Minute
)

// Hub is what workers need of theirs.
type Hub struct {
	Fleet   *fleet.Registry
	Library *catalog.Library
	// Folders are for the files of the workers' jobs while they run.
	Folders facade.Folders
	// Known are the node classes of the fleet.
	Known interface {
		Learned(instance string, info *catalog.Info, version comfyui.Version)
		Catalog() *catalog.Catalog
	}
	// Version is the version of ComfyUI that the fleet supports.
	Version func() comfyui.Version
	Log     func() *slog.Logger
}

// Workers are the programs that fetch their jobs from this hub. They are safe for concurrent use.
type Workers struct {
	hub  Hub
	ctx  context.Context
	quit context.CancelFunc
	work sync.WaitGroup
	// taking ends when workers no longer get jobs from this hub.
	taking context.Context
	stop   context.CancelFunc

	mu  sync.Mutex
	all map[string]*enlisted // by name of the instance
}

// enlisted is a worker that the hub knows.
type enlisted struct {
	*Worker

	machine string
	// can is the hash of what it can run, size the length of that in bytes.
	can  [sha256.Size]byte
	size int
	// names are those of the classes, if the worker has told nothing else.
	names string
	// replaced is closed when another life of the worker has begun.
	replaced chan struct{}
}

// NewWorkers returns no workers: they come by themselves.
func NewWorkers(h Hub) *Workers {
	ctx, quit := context.WithCancel(context.Background())
	taking, stop := context.WithCancel(ctx)
	h.Folders.Sweep()
	return &Workers{hub: h, ctx: ctx, quit: quit, taking: taking, stop: stop, all: map[string]*enlisted{}}
}

// Find returns the worker of a machine that calls itself id. The error is [ErrGone] if it was
// not enlisted, or has not been heard from for too long.
func (s *Workers) Find(machine, id string) (*Worker, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.all[fleet.WorkerName(machine, id)]; w != nil && !w.isGone() {
		return w.Worker, nil
	}
	return nil, ErrGone
}

// Holder returns the worker of a machine that has a job.
func (s *Workers) Holder(machine, job string) (*Worker, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.all {
		if w.machine == machine && w.Holds(job) {
			return w.Worker, nil
		}
	}
	return nil, ErrNotHeld
}

func (w *enlisted) isGone() bool {
	select {
	case <-w.Gone():
		return true
	default:
		return false
	}
}

// Enlist takes in a worker that can run the node classes in objectInfo, which is the object of GET
// /object_info. A worker that was enlisted with other classes starts over. The error is
// [ErrTooMany], [ErrHolds], [fleet.ErrName] or one of the disk.
func (s *Workers) Enlist(machine, id, device string, objectInfo []byte) (*Worker, error) {
	return s.enlist(machine, id, device, objectInfo, "")
}

func (s *Workers) enlist(machine, id, device string, objectInfo []byte, names string) (*Worker, error) {
	if err := fleet.CheckName(id); err != nil {
		return nil, err
	}
	name, can := fleet.WorkerName(machine, id), sha256.Sum256(objectInfo)
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.all[name]
	switch {
	case s.taking.Err() != nil:
		return nil, ErrGone
	case old != nil && !old.isGone() && old.can == can:
		return old.Worker, nil
	case old != nil && !old.isGone() && !old.Idle():
		return nil, ErrHolds
	case !s.room(machine, name, len(objectInfo)):
		return nil, ErrTooMany
	}
	info, err := s.hub.Library.Parse(objectInfo)
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	dir, err := s.hub.Folders.Make()
	if err != nil {
		return nil, err
	}
	version := direct.Version(s.hub.Version())
	w, err := New(Options{
		Dir: dir, ObjectInfo: objectInfo, Version: version.Text, Device: device,
	})
	if err != nil {
		return nil, err
	}
	if old != nil {
		old.Close()
		close(old.replaced)
	}
	one := &enlisted{Worker: w, machine: machine, can: can, names: names, size: len(objectInfo), replaced: make(chan struct{})}
	s.all[name] = one
	s.hub.Fleet.AddWorker(name)
	// At once, like the answer to the worker: whoever has read that it is enlisted may post a job
	// for it before the dispatcher has connected.
	s.hub.Known.Learned(name, info, version)
	s.work.Go(func() { s.follow(name, one) })
	return w, nil
}

// room reports whether a machine may have a worker with abilities of the given size. The caller
// holds the lock.
func (s *Workers) room(machine, name string, size int) bool {
	count := 0
	for other, w := range s.all {
		if w.machine == machine && other != name {
			count++
			size += w.size
		}
	}
	return count < MaxOfMachine && len(s.all) < maxInAll && size <= maxInfo
}

// follow tells the fleet about a worker for as long as it lives, and a while longer.
func (s *Workers) follow(name string, w *enlisted) {
	log := s.hub.Log().With("instance", name)
	log.Info("worker connected")
	ctx, stop := context.WithCancel(s.ctx)
	var watching sync.WaitGroup
	watching.Go(func() { direct.WatchFacade(ctx, s.hub.Fleet, fleet.KindWorker, name, w.Dial, log) })
	select {
	case <-w.Gone():
	case <-s.ctx.Done():
	}
	stop()
	watching.Wait()
	w.Close()
	log.Info("worker disconnected")
	s.mu.Lock()
	if s.all[name] == w && s.ctx.Err() == nil {
		s.hub.Fleet.Observe(fleet.InstanceReport{
			Name: name, URL: name, Direct: true, Kind: fleet.KindWorker, Reason: "the worker has not been heard of", Since: time.Now().UnixMilli(),
		})
	}
	s.mu.Unlock()
	shown := time.NewTimer(kept)
	defer shown.Stop()
	select {
	case <-shown.C:
	case <-w.replaced:
		return
	case <-s.ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[name] == w {
		delete(s.all, name)
		s.hub.Fleet.RemoveStatic(name)
	}
}

// Dialer connects to the facade of a worker, whichever life it is in at the time.
func (s *Workers) Dialer(name string) direct.Dial {
	return direct.Late(func() direct.Dial {
		s.mu.Lock()
		defer s.mu.Unlock()
		if w := s.all[name]; w != nil {
			return w.Dial
		}
		return nil
	})
}

// Named is Enlist for a worker that only tells the names of its node classes. While it lives, they
// stay as they were when it came.
func (s *Workers) Named(machine, id string, names []string, device string) (*Worker, error) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	asked := strings.Join(names, "\n")
	s.mu.Lock()
	if w := s.all[fleet.WorkerName(machine, id)]; w != nil && !w.isGone() && w.names == asked {
		s.mu.Unlock()
		return w.Worker, nil
	}
	s.mu.Unlock()
	return s.enlist(machine, id, device, s.describe(names), asked)
}

// describe describes node classes that are only known by name: as other instances have them, or as
// classes that take whatever they are given and show what they make.
func (s *Workers) describe(names []string) []byte {
	all := &pyjson.Object{}
	for _, name := range names {
		if v, err := pyjson.Parse(s.hub.Known.Catalog().Class(name, nil).Body()); err == nil {
			if known, ok := v.(*pyjson.Object); ok {
				if one, ok := known.Get(name); ok {
					all.Set(name, one)
					continue
				}
			}
		}
		all.Set(name, pyjson.NewObject(
			pyjson.Member{Key: "input", Value: pyjson.NewObject(pyjson.Member{Key: "required", Value: &pyjson.Object{}})},
			pyjson.Member{Key: "input_order", Value: pyjson.NewObject(pyjson.Member{Key: "required", Value: pyjson.Array{}})},
			pyjson.Member{Key: "output", Value: pyjson.Array{}},
			pyjson.Member{Key: "output_is_list", Value: pyjson.Array{}},
			pyjson.Member{Key: "output_name", Value: pyjson.Array{}},
			pyjson.Member{Key: "name", Value: pyjson.String(name)},
			pyjson.Member{Key: "display_name", Value: pyjson.String(name)},
			pyjson.Member{Key: "description", Value: pyjson.String("")},
			pyjson.Member{Key: "category", Value: pyjson.String("worker")},
			pyjson.Member{Key: "output_node", Value: pyjson.Bool(true)},
		))
	}
	return pyjson.Marshal(all)
}

// Wait returns a context for a worker that is waiting for a job: it also ends when the hub stops.
func (s *Workers) Wait(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	unhook := context.AfterFunc(s.taking, cancel)
	return ctx, func() {
		unhook()
		cancel()
	}
}

// Stop makes waiting workers leave without a job.
func (s *Workers) Stop() { s.stop() }

// Close ends all workers. What they are running is run again.
func (s *Workers) Close() {
	s.quit()
	s.work.Wait()
}
