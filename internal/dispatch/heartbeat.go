package dispatch

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/retry"
	"github.com/comfyhub/comfyhub/internal/run"
)

// heartbeat tells other hubs that this one is alive, and takes over the runs of those that are not.
type heartbeat struct {
	queue *queue.Queue
	hub   string
	// gone reports whether the process of a silent hub is gone.
	gone      func(ctx context.Context, hub string) bool
	instances *Instances
	leases    *leases
	work      *panics.Group
	log       *slog.Logger
	// silent passes hubs to inherit to look at.
	silent chan []string
	// emptied are silent hubs that no longer hold any run, until the queue is told.
	emptied emptied
}

// emptied lists silent hubs that no longer hold any run, until the queue is told.
type emptied struct {
	mu   sync.Mutex
	hubs []string
}

func (e *emptied) add(hub string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hubs = append(e.hubs, hub)
}

// take returns them and empties the list.
func (e *emptied) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	hubs := e.hubs
	e.hubs = nil
	return hubs
}

const (
	// beatEvery is how often a hub tells the others that it is alive.
	beatEvery = time.Second
	// beatLasts is how long a hub counts as alive after that.
	beatLasts = 3 * beatEvery
	// quitTimeout bounds telling the other hubs that this one is stopping.
	quitTimeout = 2 * time.Second
)

// keep tells the other hubs that this one is alive, until ctx ends. Nothing slow may hold it
// up.
func (h *heartbeat) keep(ctx context.Context) {
	for ctx.Err() == nil {
		silent, late, err := h.queue.Beat(ctx, h.hub, beatLasts, h.emptied.take()...)
		if err == nil && late {
			h.work.Go(h.log, "looking for lost runs", func() { h.leases.renew(ctx) })
		}
		if len(silent) > 0 {
			select {
			case h.silent <- silent:
			default: // still busy with the last ones
			}
		}
		retry.Sleep(ctx, beatEvery)
	}
}

// inherit takes over the runs of hubs that are silent and gone, until ctx ends.
func (h *heartbeat) inherit(ctx context.Context) {
	for {
		select {
		case hubs := <-h.silent:
			for _, hub := range hubs {
				if h.gone(ctx, hub) {
					h.inheritFrom(ctx, hub)
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

// inheritFrom takes over the runs of one hub without waiting for their leases to end. Runs on
// instances that this hub cannot reach are left to others: their own hub may be the only one that
// can, and it may just be restarting.
func (h *heartbeat) inheritFrom(ctx context.Context, hub string) {
	runs, err := h.queue.Runs(ctx)
	if err != nil {
		return
	}
	left := 0
	for _, held := range runs {
		if held.Hub != hub {
			continue
		}
		if conn := h.instances.Get(held.Instance); conn == nil || !conn.IsReached() {
			left++
			continue
		}
		orphan, err := h.queue.Inherit(ctx, held, h.hub)
		if err == nil {
			h.leases.adopt(ctx, orphan, run.Silent)
		}
	}
	if left == 0 {
		h.emptied.add(hub)
	}
}

// quit hands this hub's runs over to the others; it no longer follows them.
func (h *heartbeat) quit() {
	ctx, cancel := context.WithTimeout(context.Background(), quitTimeout)
	defer cancel()
	if err := h.queue.Quit(ctx, h.hub); err != nil {
		h.log.Debug("cannot tell the other hubs that this one stops", "error", err)
	}
}
