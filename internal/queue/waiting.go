package queue

import (
	"context"

	"github.com/comfyhub/comfyhub/internal/job"
)

// SetPriority moves a waiting job to another priority, from -100 to 100. Errors:
// ErrNotQueued, ErrNotFound.
func (q *Queue) SetPriority(ctx context.Context, key string, priority int) (job.Job, error) {
	code, fields, err := q.run(ctx, priorityScript, key, min(max(priority, job.MinPriority), job.MaxPriority))
	if err != nil {
		return job.Job{}, err
	}
	if err := refusal(code); err != nil {
		return job.Job{}, err
	}
	return replied(fields).job()
}

// SetReason records in plain words why a job is waiting. Errors: ErrNotQueued,
// ErrNotFound.
func (q *Queue) SetReason(ctx context.Context, key, reason string) error {
	return q.fenced(ctx, reasonScript, key, reason)
}
