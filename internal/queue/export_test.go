package queue

import (
	"context"

	"github.com/comfyhub/comfyhub/internal/job"
)

// KeepCopies keeps copies with the embedded server too, for tests of what is done with them.
func (q *Queue) KeepCopies() { q.copies = newCopies() }

// HealNow is Heal as after a restart of Redis.
func (q *Queue) HealNow(ctx context.Context) error {
	_ = q.heal.turn.Acquire(context.Background(), 1)
	q.heal.seen = "another"
	q.heal.turn.Release(1)
	return q.Heal(ctx)
}

// RenewAndRecover is Renew, and Recover of the runs found lost.
func (q *Queue) RenewAndRecover(ctx context.Context, hub string, runs []job.Run) (RenewResult, error) {
	result, err := q.Renew(ctx, hub, runs)
	if err != nil {
		return result, err
	}
	result.Lost, err = q.Recover(ctx, runs, result.Lost)
	return result, err
}

// WithRoom makes a change that Redis has refused because it was full.
func (q *Queue) WithRoom(ctx context.Context, refused error, change func() ([]string, error)) ([]string, error) {
	return q.withRoom(ctx, refused, change)
}
