package run

import (
	"context"
	"errors"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// Superseded stops prompts on an instance that a hub sent and nobody is waiting for: runs that were
// given up while the instance could not be reached, or whose claim was lost in a Redis failover.
type Superseded struct {
	queue    *queue.Queue
	settings func() Settings
}

// NewSuperseded returns what stops them.
func NewSuperseded(q *queue.Queue, settings func() Settings) *Superseded {
	return &Superseded{queue: q, settings: settings}
}

// Clear stops them on one instance and waits a while for them to go, since they would keep it from
// other work. Prompts of jobs that this queue has never known belong to somebody else's hub.
func (s *Superseded) Clear(ctx context.Context, conn *instance.Link) error {
	asked := map[string]bool{}
	for until := time.Now().Add(min(s.settings().StallTimeout, interruptTimeout)); ; {
		left, err := s.stopOnce(ctx, conn, asked)
		if err != nil || left == 0 || time.Now().After(until) || !retry.Sleep(ctx, stalePause) {
			return err
		}
	}
}

// stalePause is the pause between checks whether a stale run is gone.
const stalePause = 500 * time.Millisecond

// stopOnce asks an instance to stop the stale prompts that it has not been asked to stop yet, and
// returns how many stale ones it has.
func (s *Superseded) stopOnce(ctx context.Context, conn *instance.Link, asked map[string]bool) (left int, err error) {
	shown, err := conn.Client.Queue(ctx)
	if err != nil {
		return 0, err
	}
	for n, item := range append(shown.Running, shown.Pending...) {
		if !item.Mark.Ours() {
			continue
		}
		stale, err := s.has(ctx, conn, item)
		if err != nil {
			return 0, err
		}
		if !stale {
			continue
		}
		left++
		if asked[item.ID] {
			continue
		}
		conn.Log.Info("interrupting a run that has been superseded", "job", item.Mark.Job)
		if n >= len(shown.Running) {
			err = conn.Client.DeleteQueued(ctx, item.ID)
		} else {
			err = conn.Client.Interrupt(ctx, item.ID)
		}
		if err != nil {
			return 0, err
		}
		asked[item.ID] = true
	}
	return left, nil
}

// has reports whether a prompt on an instance belongs to an attempt that has ended.
func (s *Superseded) has(ctx context.Context, conn *instance.Link, item comfyui.QueueItem) (bool, error) {
	j, err := s.queue.Get(ctx, item.Mark.Job)
	if errors.Is(err, queue.ErrNotFound) {
		return s.queue.Removed(ctx, item.Mark.Job)
	}
	if err != nil {
		return false, err
	}
	held := (j.State == job.Leased || j.State == job.Running) && j.Run.Instance == conn.Name
	// Servers before 0.3.45 choose their own ids.
	return !held || conn.Capability().HonoursPromptID() && j.Run.Upstream != item.ID, nil
}
