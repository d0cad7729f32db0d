package lease

import (
	"context"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/retry"
	"github.com/comfyhub/comfyhub/internal/run"
)

// Heartbeat tells other hubs that this one is alive, and takes over the runs of those that are not.
type Heartbeat struct {
	leases *Leases
	links  *instance.Links
	// gone reports whether the process of a silent hub is gone.
	gone func(ctx context.Context, hub string) bool
	work *panics.Group
	// silent passes hubs to Inherit to look at.
	silent chan []string
	// emptied are silent hubs that no longer hold any run, until the queue is told.
	emptied emptied
}

// NewHeartbeat returns the heartbeat of the hub with these leases. gone reports whether the process of a
// silent hub is gone.
func NewHeartbeat(leases *Leases, links *instance.Links, gone func(ctx context.Context, hub string) bool, work *panics.Group) *Heartbeat {
	return &Heartbeat{leases: leases, links: links, gone: gone, work: work, silent: make(chan []string, 1)}
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

// Beat tells the other hubs that this one is alive, until ctx ends. Nothing slow may hold it
// up.
func (h *Heartbeat) Beat(ctx context.Context) {
	for ctx.Err() == nil {
		silent, late, err := h.leases.Queue.Beat(ctx, h.leases.Hub, beatLasts, h.emptied.take()...)
		if err == nil && late {
			h.work.Go(h.leases.Logger, "looking for lost runs", func() { h.leases.renew(ctx) })
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

// Inherit takes over the runs of hubs that are silent and gone, until ctx ends.
func (h *Heartbeat) Inherit(ctx context.Context) {
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
func (h *Heartbeat) inheritFrom(ctx context.Context, hub string) {
	runs, err := h.leases.Queue.Runs(ctx)
	if err != nil {
		return
	}
	left := 0
	for _, held := range runs {
		if held.Hub != hub {
			continue
		}
		if conn := h.links.Get(held.Instance); conn == nil || !conn.IsReached() {
			left++
			continue
		}
		orphan, err := h.leases.Queue.Inherit(ctx, held, h.leases.Hub)
		if err == nil {
			h.leases.Adopt(ctx, orphan, run.Silent)
		}
	}
	if left == 0 {
		h.emptied.add(hub)
	}
}

// Quit hands this hub's runs over to the others; it no longer follows them.
func (h *Heartbeat) Quit() {
	ctx, cancel := context.WithTimeout(context.Background(), quitTimeout)
	defer cancel()
	if err := h.leases.Queue.Quit(ctx, h.leases.Hub); err != nil {
		h.leases.Logger.Debug("cannot tell the other hubs that this one stops", "error", err)
	}
}
