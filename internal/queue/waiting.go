package queue

import (
	"context"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/job"
)

// Position is where a job may be moved among its tenant's waiting ones of the same priority.
type Position string

// The positions.
const (
	Front Position = "front"
	End   Position = "end"
)

// Steering is what to change about when a waiting job runs. Its zero value changes nothing.
type Steering struct {
	// Priority is from -100 to 100; values outside are clamped. Nil leaves it.
	Priority *int
	// Position moves the job; empty leaves it in its place.
	Position Position
	// Paused pauses the job or resumes it; nil leaves it. A paused job keeps its place
	// and counts as waiting, but is not given out.
	Paused *bool
}

// Steer changes when a waiting job runs, all at once or not at all. Errors: ErrNotQueued,
// ErrNotFound.
func (q *WaitingJobs) Steer(ctx context.Context, key string, s Steering) (job.Job, error) {
	priority, paused := "", ""
	if s.Priority != nil {
		priority = strconv.Itoa(min(max(*s.Priority, job.MinPriority), job.MaxPriority))
	}
	if s.Paused != nil {
		paused = "0"
		if *s.Paused {
			paused = "1"
		}
	}
	code, fields, err := q.run(ctx, steerScript, key, priority, string(s.Position), paused)
	if err != nil {
		return job.Job{}, err
	}
	if err := refusal(code); err != nil {
		return job.Job{}, err
	}
	steered := replied(fields)
	q.copies.change(key, steered, func(*copied) {})
	return steered.job()
}
