package dispatch

import (
	"context"
	"errors"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// tidy stops prompts on an instance that a hub sent and that count no more:
// runs that were given up while the instance could not be reached, or whose
// claim a Redis failover has lost. They would keep the instance from work that
// somebody waits for. Prompts of jobs that this queue does not know belong to
// somebody else's hub.
func (d *Dispatcher) tidy(ctx context.Context, l *link) error {
	shown, err := l.client.Queue(ctx)
	if err != nil {
		return err
	}
	for n, item := range append(shown.Running, shown.Pending...) {
		if !item.Mark.Ours() {
			continue
		}
		stale, err := d.stale(ctx, l, item)
		if err != nil {
			return err
		}
		if !stale {
			continue
		}
		l.log.Info("stopping a run that counts no more", "job", item.Mark.Job)
		if n >= len(shown.Running) {
			err = l.client.DeleteQueued(ctx, item.ID)
		} else {
			err = l.client.Interrupt(ctx, item.ID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stale reports whether a prompt on an instance is of an attempt that is over.
func (d *Dispatcher) stale(ctx context.Context, l *link, item comfyui.QueueItem) (bool, error) {
	j, err := d.queue.Get(ctx, item.Mark.Job)
	if errors.Is(err, queue.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	held := (j.State == job.Leased || j.State == job.Running) && j.Run.Instance == l.name
	// Servers before 0.3.45 choose their own ids.
	return !held || l.capability().HonoursPromptID() && j.Run.Upstream != item.ID, nil
}
