package system

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/comfyhub/comfyhub/internal/files"
)

// Disk is the storage that all hubs share: a folder, on a disk that can be full, slow or
// broken.
type Disk struct {
	w *World

	mu    sync.Mutex
	state DiskState
	saw   func(host string, step files.Step)

	lapse lapse
	// fates counts what was damaged: each file in turn has another one.
	fates int
}

// DiskState is how a disk is. The zero value is well.
type DiskState struct {
	// Err is the answer to everything.
	Err error
	// Full takes no more than Room bytes of what is written.
	Full bool
	Room int
	// Delay is how long each step takes.
	Delay time.Duration
}

func newDisk(w *World) *Disk { return &Disk{w: w} }

// Set changes how the disk is.
func (d *Disk) Set(s DiskState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.state = s
}

// Watch has a function told of each step that a host takes, before it is done; nil for none.
func (d *Disk) Watch(saw func(host string, step files.Step)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.saw = saw
}

// take is one step of a request: what it costs and what it gives.
func (d *Disk) take(step files.Step, bytes int) (time.Duration, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &d.state
	if s.Err != nil {
		return s.Delay, s.Err
	}
	if s.Full && step == files.StepWrite {
		if s.Room -= bytes; s.Room < 0 {
			s.Room += bytes
			return s.Delay, syscall.ENOSPC
		}
	}
	return s.Delay, nil
}

// handle is what one process has of the disk.
type handle struct {
	disk    *Disk
	host    string
	revoked atomic.Bool
}

func (d *Disk) handle(host string) *handle { return &handle{disk: d, host: host} }

// revoke ends the process: nothing that it does changes or reads the disk any more.
func (h *handle) revoke() { h.revoked.Store(true) }

// pass implements [files.Gate]. A frozen process gets on when it is thawed.
func (h *handle) pass(ctx context.Context, step files.Step, bytes int) error {
	delay, err := h.disk.take(step, bytes)
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	h.disk.w.Net.Awake(h.host)
	h.disk.mu.Lock()
	saw := h.disk.saw
	h.disk.mu.Unlock()
	if saw != nil && err == nil {
		saw(h.host, step)
	}
	if h.revoked.Load() {
		err = syscall.EBADF
	}
	if err != nil {
		return &os.PathError{Op: string(step), Path: "storage", Err: err}
	}
	return nil
}
