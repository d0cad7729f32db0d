package submit

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/dispatch"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// Canceller ends waiting and running jobs, whichever hub has them, for every dialect alike, and
// changes when waiting ones run. If a job no longer exists, there is nothing to cancel. Errors are
// those of Redis.
type Canceller struct {
	Queue    *queue.Queue
	Dispatch *dispatch.Dispatcher
	Streams  *stream.Streams
	// Steered is told the key of a job that was steered.
	Steered func(key string)
}

// Cancel ends a tenant's newest job with an id, or the one with that key, wherever it is, and reports
// whether there was one to end.
func (c *Canceller) Cancel(ctx context.Context, tenant, id string) (bool, error) {
	j, err := c.Queue.FindOrGet(ctx, tenant, id)
	if err != nil || j.Withdrawn || !j.State.Live() {
		return false, ignoreNotFound(err)
	}
	j = j.Seen()
	err = c.Stop(ctx, j)
	return err == nil, err
}

// Stop ends a job wherever it is. A client that has seen it run is told that it was interrupted.
func (c *Canceller) Stop(ctx context.Context, j job.Job) error {
	result, err := c.Queue.Cancel(ctx, j.Key)
	if err != nil {
		return ignoreNotFound(err)
	}
	switch {
	case result.Was == job.Queued, result.Withdrawn:
		// It was lost and requeued between the look and the cancel, or is waiting at an instance;
		// it is out of the queue now, and its client must be told all the same.
		c.Dispatch.Notices.Interrupted(j)
		c.Dispatch.Runs.Withdraw(j.Key)
	default:
		c.Dispatch.Runs.Cancel(j.Key)
	}
	c.Streams.Statuses.Changed(j.Caller)
	return nil
}

// Withdraw ends a running job without a message, and without a history entry unless it was
// listed as running. Should its client be shown it just now, it is told that the prompt was
// interrupted.
func (c *Canceller) Withdraw(ctx context.Context, j job.Job, listed bool) error {
	result, err := c.Queue.Withdraw(ctx, j.Key, listed)
	if err != nil {
		return ignoreNotFound(err)
	}
	if result.Withdrawn {
		c.Streams.Drop(stream.KeyOf(j.Requester), j.Key,
			stream.Text(comfyui.ExecutionInterrupted(j.ID, "", "", nil, time.Now())))
		c.Dispatch.Runs.Withdraw(j.Key)
	}
	c.Streams.Statuses.Changed(j.Caller)
	return nil
}

// CancelWaiting takes jobs out of the queue without a trace, and returns the keys of those that
// were still in it. Only their callers' sockets are told.
func (c *Canceller) CancelWaiting(ctx context.Context, jobs ...job.Job) (gone map[string]bool, err error) {
	keys := make([]string, len(jobs))
	for n, j := range jobs {
		keys[n] = j.Key
	}
	removed, err := c.Queue.CancelWaiting(ctx, keys)
	gone = make(map[string]bool, len(removed))
	for _, key := range removed {
		gone[key] = true
	}
	var callers []string
	for _, j := range jobs {
		if gone[j.Key] {
			callers = append(callers, j.Caller)
		}
	}
	slices.Sort(callers)
	if callers = slices.Compact(callers); len(callers) > 0 {
		c.Streams.Statuses.Changed(callers...)
	}
	return gone, err
}

// ignoreNotFound treats a missing job as nothing to do.
func ignoreNotFound(err error) error {
	if errors.Is(err, queue.ErrNotFound) {
		return nil
	}
	return err
}
