package queue

import (
	"context"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
)

// Beat records that a hub is alive, and for how long that counts, and returns the hubs whose last
// beat no longer counts. late means that this hub was one of them: others may have taken over its
// runs. buried are silent hubs known to hold no run; they are not returned again.
//
// A silent hub may be alive and merely cut off from Redis. That does no harm, see [Queue.Inherit],
// but callers that can should check whether it is really gone.
//
// If all hubs were silent, Redis was probably unavailable and nobody could beat. They get time to
// do so now.
func (q *LeasedRuns) Beat(ctx context.Context, hub string, lasts time.Duration, buried ...string) (silent []string, late bool, err error) {
	args := []any{hub, milliseconds(lasts)}
	for _, b := range buried {
		args = append(args, b)
	}
	code, silent, err := q.run(ctx, beatScript, args...)
	return silent, code == "late", err
}

// Quit records that a hub is stopping, so that others take over its runs without waiting for a
// missed beat.
func (q *LeasedRuns) Quit(ctx context.Context, hub string) error {
	return q.fenced(ctx, quitScript, hub)
}

// Inherit takes over a run from a silent hub before its lease ends, with a new lease and a new
// fence: anything that hub still sends, should it be alive after all, is stale. Errors: ErrStale if
// the run has changed hands or ended, or its hub has beaten again.
func (q *LeasedRuns) Inherit(ctx context.Context, run job.Run, hub string) (Orphan, error) {
	return q.takeOver(ctx, inheritScript, run.Key, run.Fence, run.Hub, hub, milliseconds(q.o.Lease))
}

// Adopt takes over a run, with a new lease and a new fence, from a hub that is known to be dead: an
// older boot of this hub. Errors: ErrStale if the run has changed hands or ended.
func (q *LeasedRuns) Adopt(ctx context.Context, run job.Run, hub string) (Orphan, error) {
	return q.takeOver(ctx, adoptScript, run.Key, run.Fence, hub, milliseconds(q.o.Lease))
}
