package queue

import (
	"context"
	"slices"

	"github.com/comfyhub/comfyhub/internal/job"
)

// CancelResult is the result of Cancel.
type CancelResult struct {
	// Was is the previous state. A queued job is gone; a leased or running one is to be interrupted
	// and finished by its holder; an ended job stays as it ended.
	Was job.State
	// Withdrawn means that the job is running and its client has withdrawn it.
	Withdrawn bool
	// Run is the job's last run; the one to interrupt if it is leased or running.
	Run job.Run
}

// Cancel removes a waiting job, without a history entry, as in ComfyUI. For a run
// it asks the holder to end it: by an event at once, and in each Renew. Errors:
// ErrNotFound.
func (q *WaitingJobs) Cancel(ctx context.Context, key string) (CancelResult, error) {
	return q.cancel(ctx, key, "")
}

// Withdraw removes a job as if it had never been sent. It removes a waiting job as
// Cancel does. A running job disappears from all listings and counts, its holder is
// asked to end it, and its end leaves no history entry; but if it was listed as
// running, it does: somebody may wait for it. A job that was cancelled before ends as
// cancelled. Errors: ErrNotFound.
func (q *WaitingJobs) Withdraw(ctx context.Context, key string, listed bool) (CancelResult, error) {
	if listed {
		return q.cancel(ctx, key, "listed")
	}
	return q.cancel(ctx, key, "1")
}

func (q *WaitingJobs) cancel(ctx context.Context, key, withdraw string) (CancelResult, error) {
	code, values, err := q.run(ctx, cancelScript, key, milliseconds(q.o.Tombstone), withdraw)
	if err != nil {
		return CancelResult{}, err
	}
	if err := refusal(code); err != nil {
		return CancelResult{}, err
	}
	r := replied(values[1:])
	if job.State(values[0]) == job.Queued {
		q.copies.remove(milliseconds(q.o.Tombstone), key)
	} else {
		q.copies.change(key, nil, func(c *copied) {
			for _, field := range []string{"cancel", "withdrawn", "was_listed"} {
				if r[field] != "" { // scripts only check whether there is one
					c.record[field] = r[field]
				}
			}
		})
	}
	j, err := r.job()
	return CancelResult{Was: job.State(values[0]), Withdrawn: j.Withdrawn, Run: j.Run}, err
}

// CancelWaiting removes those of the jobs that are waiting, as ComfyUI's delete and clear do, and
// returns their keys. Jobs waiting at an instance are withdrawn: their holders are told to take
// them back. Other jobs are left alone.
func (q *WaitingJobs) CancelWaiting(ctx context.Context, keys []string) ([]string, error) {
	var removed []string
	for batch := range slices.Chunk(keys, batchSize) {
		args := make([]any, 0, 1+len(batch))
		args = append(args, milliseconds(q.o.Tombstone))
		for _, key := range batch {
			args = append(args, key)
		}
		_, gone, err := q.run(ctx, cancelWaitingScript, args...)
		if err != nil {
			return removed, err
		}
		q.copies.remove(milliseconds(q.o.Tombstone), gone...)
		removed = append(removed, gone...)
	}
	return removed, nil
}
