package instance

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/panics"
)

const (
	// cleanupDelay is how long a finished prompt may stay in an instance's own history. If another
	// hub is given the same id within that time, it may lose the history entry of its run there and
	// repeat the run.
	cleanupDelay = 250 * time.Millisecond
	// cleanupCount is the most prompts removed together.
	cleanupCount = 64
	// cleanupTimeout bounds a removal, and cleanupAtClose the wait for those under way: a hub that
	// stops does not wait long for an instance that does not answer.
	cleanupTimeout, cleanupAtClose = 10 * time.Second, time.Second
)

// historyCleanup removes finished prompts from an instance's own history, where they would only
// pile up: the hub has them now. It removes several with one request, because a request each would
// cost hub and agent a tenth of what a trivial prompt does. What cannot be removed stays there and
// does no harm: nobody asks for the prompt of a job that has ended.
type historyCleanup struct {
	remove func(ctx context.Context, ids ...string) error
	log    *slog.Logger
	ctx    context.Context
	stop   context.CancelFunc

	mu     sync.Mutex
	ids    []string
	timer  *time.Timer
	closed bool
	work   panics.Group
}

func newHistoryCleanup(remove func(ctx context.Context, ids ...string) error, log *slog.Logger) *historyCleanup {
	h := &historyCleanup{remove: remove, log: log}
	h.ctx, h.stop = context.WithCancel(context.Background())
	return h
}

// Add schedules the removal of a prompt.
func (h *historyCleanup) Add(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.ids = append(h.ids, id)
	switch len(h.ids) {
	case 1:
		h.timer = time.AfterFunc(cleanupDelay, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.flush()
		})
	case cleanupCount:
		h.flush()
	}
}

// flush removes what has been added. The caller holds the lock. A timer that fires too late to be
// stopped makes the next removal early, which does no harm.
func (h *historyCleanup) flush() {
	if len(h.ids) == 0 || h.closed {
		return
	}
	ids := h.ids
	h.ids = nil
	h.timer.Stop()
	h.work.Go(h.log, "removing prompts from an instance's history", func() {
		ctx, cancel := context.WithTimeout(h.ctx, cleanupTimeout)
		defer cancel()
		if err := h.remove(ctx, ids...); err != nil {
			h.log.Debug("cannot remove prompts from the instance's history", "count", len(ids), "error", err)
		}
	})
}

// close removes what is left and waits until all requests have ended.
func (h *historyCleanup) close() {
	h.mu.Lock()
	h.flush()
	h.closed = true
	h.mu.Unlock()
	late := time.AfterFunc(cleanupAtClose, h.stop)
	h.work.Wait()
	late.Stop()
	h.stop()
}
