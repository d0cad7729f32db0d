package submit

import (
	"context"
	"errors"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// ErrNotWaiting says that a job has been given to an instance or has ended.
var ErrNotWaiting = queue.ErrNotQueued

// Steering is what to change about when a waiting job runs.
type Steering = queue.Steering

// The positions of a Steering.
const (
	Front = queue.Front
	End   = queue.End
)

// Steer changes when a tenant's newest job with an id, or the one with that key, will run. A job that
// is waiting at an instance behind another one has been given out and can no longer be steered.
// Errors: ErrNoJob, ErrNotWaiting.
func (c *Canceller) Steer(ctx context.Context, tenant, id string, s Steering) error {
	j, err := c.Queue.FindOrGet(ctx, tenant, id)
	switch {
	case err != nil:
		return err
	case j.Withdrawn:
		return queue.ErrNotFound
	}
	if j = j.Seen(); j.State != job.Queued {
		return ErrNotWaiting
	}
	_, err = c.Queue.Steer(ctx, j.Key, s)
	if errors.Is(err, queue.ErrNotFound) {
		return queue.ErrNotFound
	}
	c.Steered(j.Key)
	return err
}
