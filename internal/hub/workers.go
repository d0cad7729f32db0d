package hub

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/worker"
)

const (
	// workersFolder in the data folder has the files of the workers' jobs while they run.
	workersFolder = "workers"
	// maxWorkers bounds the workers of a machine, and maxAllWorkers those of the hub.
	maxWorkers, maxAllWorkers = 32, 1000
	// maxWorkerInfo bounds what is kept about what the workers of a machine can run, in bytes.
	maxWorkerInfo = 64 << 20
	// workerKept is how long a worker is shown after it was last heard from.
	workerKept = time.Minute
	// workersSwept is the age at which no hub can still be using a worker's folder.
	workersSwept = 24 * time.Hour
	// workerVersion is the version of ComfyUI that workers are assumed to have while no ComfyUI is
	// connected.
	workerVersion = "0.33.0"
)

// Workers are the programs that fetch their jobs from this hub. They are safe for concurrent use.
type Workers struct {
	hub     *Hub
	library *catalog.Library
	ctx     context.Context
	quit    context.CancelFunc
	work    sync.WaitGroup
	// taking ends when workers no longer get jobs from this hub.
	taking context.Context
	stop   context.CancelFunc

	mu  sync.Mutex
	all map[string]*enlisted // by name of the instance
}

// enlisted is a worker that the hub knows.
type enlisted struct {
	*worker.Worker

	machine string
	// can is the hash of what it can run, size the length of that in bytes.
	can  [sha256.Size]byte
	size int
	// names are those of the classes, if the worker has told nothing else.
	names string
	// replaced is closed when another life of the worker has begun.
	replaced chan struct{}
}

func newWorkers(h *Hub, library *catalog.Library) *Workers {
	ctx, quit := context.WithCancel(context.Background())
	taking, stop := context.WithCancel(ctx)
	s := &Workers{hub: h, library: library, ctx: ctx, quit: quit, taking: taking, stop: stop, all: map[string]*enlisted{}}
	s.sweep()
	return s
}

// sweep removes what killed hubs have left behind.
func (s *Workers) sweep() {
	folder := filepath.Join(s.hub.id.Data, workersFolder)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return // there is none
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) > workersSwept {
			_ = os.RemoveAll(filepath.Join(folder, entry.Name()))
		}
	}
}

// Find returns the worker of a machine that calls itself id. The error is [worker.ErrGone] if it was
// not enlisted, or has not been heard from for too long.
func (s *Workers) Find(machine, id string) (*worker.Worker, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.all[fleet.WorkerName(machine, id)]; w != nil && !w.isGone() {
		return w.Worker, nil
	}
	return nil, worker.ErrGone
}

// Holder returns the worker of a machine that has a job.
func (s *Workers) Holder(machine, job string) (*worker.Worker, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.all {
		if w.machine == machine && w.Holds(job) {
			return w.Worker, nil
		}
	}
	return nil, worker.ErrNotHeld
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
// [worker.ErrTooMany], [worker.ErrHolds], [fleet.ErrName] or one of the disk.
func (s *Workers) Enlist(machine, id, device string, objectInfo []byte) (*worker.Worker, error) {
	return s.enlist(machine, id, device, objectInfo, "")
}

func (s *Workers) enlist(machine, id, device string, objectInfo []byte, names string) (*worker.Worker, error) {
	if err := fleet.CheckName(id); err != nil {
		return nil, err
	}
	name, can := fleet.WorkerName(machine, id), sha256.Sum256(objectInfo)
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.all[name]
	switch {
	case s.taking.Err() != nil:
		return nil, worker.ErrGone
	case old != nil && !old.isGone() && old.can == can:
		return old.Worker, nil
	case old != nil && !old.isGone() && !old.Idle():
		return nil, worker.ErrHolds
	case !s.room(machine, name, len(objectInfo)):
		return nil, worker.ErrTooMany
	}
	info, err := s.library.Parse(objectInfo)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	dir, err := s.folder()
	if err != nil {
		return nil, err
	}
	version := s.version()
	w, err := worker.New(worker.Options{
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
	s.hub.fleet.AddWorker(name)
	// At once, like the answer to the worker: whoever has read that it is enlisted may post a job
	// for it before the dispatcher has connected.
	s.hub.inventory.Learned(name, info, version)
	s.work.Go(func() { s.follow(name, one) })
	return w, nil
}

// folder makes a folder for the files of a worker.
func (s *Workers) folder() (string, error) {
	all := filepath.Join(s.hub.id.Data, workersFolder)
	if err := os.MkdirAll(all, 0o700); err != nil {
		return "", fmt.Errorf("hub: %w", err)
	}
	dir, err := os.MkdirTemp(all, "")
	if err != nil {
		return "", fmt.Errorf("hub: %w", err)
	}
	return dir, nil
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
	return count < maxWorkers && len(s.all) < maxAllWorkers && size <= maxWorkerInfo
}

func (s *Workers) version() comfyui.Version {
	if v := s.hub.Version(); v.Known() {
		return v
	}
	return comfyui.ParseVersion(workerVersion)
}

// follow tells the fleet about a worker for as long as it lives, and a while longer.
func (s *Workers) follow(name string, w *enlisted) {
	log := s.hub.log().With("instance", name)
	client, err := comfyui.NewClient("http://worker", comfyui.Options{UserAgent: userAgent, Dial: w.Dial})
	if err != nil { // the address is a constant
		panic(err)
	}
	defer client.Close()
	log.Info("worker connected")
	ctx, stop := context.WithCancel(s.ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		comfyui.Watch(ctx, client, comfyui.WatchOptions{Logger: log}, func(o comfyui.Observation) {
			report := describe(name, name, o)
			report.Kind = fleet.KindWorker
			s.hub.fleet.Observe(report)
		})
	})
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
		s.hub.fleet.Observe(fleet.InstanceReport{
			Name: name, URL: name, Direct: true, Kind: fleet.KindWorker, Reason: "the worker has not been heard of", Since: time.Now().UnixMilli(),
		})
	}
	s.mu.Unlock()
	kept := time.NewTimer(workerKept)
	defer kept.Stop()
	select {
	case <-kept.C:
	case <-w.replaced:
		return
	case <-s.ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[name] == w {
		delete(s.all, name)
		s.hub.fleet.RemoveStatic(name)
	}
}

// dialer connects to the facade of a worker, whichever life it is in at the time.
func (s *Workers) dialer(name string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		s.mu.Lock()
		w := s.all[name]
		s.mu.Unlock()
		if w == nil {
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		}
		return w.Dial(ctx, network, address)
	}
}

// Named is Enlist for a worker that only tells the names of its node classes. While it lives, they
// stay as they were when it came.
func (s *Workers) Named(machine, id string, names []string, device string) (*worker.Worker, error) {
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
		if v, err := pyjson.Parse(s.hub.inventory.Catalog().Class(name, nil).Body()); err == nil {
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

// close ends all workers. What they are running is run again.
func (s *Workers) close() {
	s.quit()
	s.work.Wait()
}
