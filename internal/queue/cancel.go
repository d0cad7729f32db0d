package queue

import (
	"context"
	"slices"

	"github.com/comfyhub/comfyhub/internal/job"
)

// CancelResult is what Cancel found.
type CancelResult struct {
	// Was is the state before. From queued the job is gone; from leased and
	// running it is the holder's to interrupt and Finish; an ended job
	// stays as it ended.
	Was job.State
	// Withdrawn says that the job runs and its client has taken it back.
	Withdrawn bool
	// Run is the job's last run; the one to interrupt where it is leased or
	// running.
	Run job.Run
}

// Cancel removes a waiting job, without a history entry as in ComfyUI, or
// asks the holder of a run to end it: by an event at once, and by each Renew.
// Errors: ErrNotFound.
func (q *Queue) Cancel(ctx context.Context, key string) (CancelResult, error) {
	return q.cancel(ctx, key, "")
}

// Withdraw takes a job back as if it had never been sent: a waiting one as
// Cancel does; a running one is in no listing and no count from now on, its
// holder is asked to end it, and its end leaves no history entry. A job whose
// cancel was asked for before ends as that says. Errors: ErrNotFound.
func (q *Queue) Withdraw(ctx context.Context, key string) (CancelResult, error) {
	return q.cancel(ctx, key, "1")
}

func (q *Queue) cancel(ctx context.Context, key, withdraw string) (CancelResult, error) {
	code, values, err := q.run(ctx, cancelScript, key, milliseconds(q.o.Tombstone), withdraw)
	if err != nil {
		return CancelResult{}, err
	}
	if err := refusal(code); err != nil {
		return CancelResult{}, err
	}
	j, err := replied(values[1:]).job()
	return CancelResult{Was: job.State(values[0]), Withdrawn: j.Withdrawn, Run: j.Run}, err
}

// CancelWaiting removes those of the jobs that wait, as ComfyUI's delete and
// clear do, and gives their keys. Others are left alone.
func (q *Queue) CancelWaiting(ctx context.Context, keys []string) ([]string, error) {
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
		removed = append(removed, gone...)
	}
	return removed, nil
}
