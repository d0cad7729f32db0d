package queue_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// order is in which the waiting jobs are given out.
func (b *bench) order() (ids []string) {
	b.t.Helper()
	w := must(b.Window(b.t.Context(), queue.Wanted{}, 0, 100))
	for _, j := range w.Jobs {
		ids = append(ids, j.ID)
	}
	return ids
}

func (b *bench) steer(j job.Job, s queue.Steering) job.Job {
	b.t.Helper()
	j = must(b.Steer(b.t.Context(), j.Key, s))
	return j
}

func TestSteerMovesWithinTheTenant(t *testing.T) {
	eachOf(t, queue.Options{}, orders, func(t *testing.T, b *bench, fifo bool) {
		b.SetLimits(queue.Limits{FIFO: fifo})
		first, second, third := b.enqueue("a"), b.enqueue("b"), b.enqueue("c")
		b.steer(third, queue.Steering{Position: queue.Front})
		require.Equal(t, []string{"c", "a", "b"}, b.order())
		b.steer(second, queue.Steering{Position: queue.Front})
		require.Equal(t, []string{"b", "c", "a"}, b.order(), "the last one to go there is first")
		b.steer(third, queue.Steering{Position: queue.End})
		b.enqueue("d")
		require.Equal(t, []string{"b", "a", "c", "d"}, b.order())
		high := 5
		j := b.steer(first, queue.Steering{Priority: &high, Position: queue.End})
		require.Equal(t, 5, j.Priority)
		require.Equal(t, "0", j.Number, "the client's number stays")
		require.Equal(t, []string{"a", "b", "c", "d"}, b.order(), "the end of its priority")
	})
}

// Whoever moves one of many jobs to the front does not move the turn of the tenant to
// the place that the job had: other callers' new jobs would come in behind all.
func TestFrontMovesNobodyBack(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		var last job.Job
		for n := range 10 {
			last = b.enqueue(fmt.Sprint("one", n), from("tenant", "one"))
		}
		b.steer(last, queue.Steering{Position: queue.Front})
		require.Equal(t, "one9", b.next(0).ID)
		b.enqueue("two", from("tenant", "two"))
		require.Equal(t, []string{"one0", "two"}, b.order()[:2])
	})
}

func TestPausedJobsWaitAndCount(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx, yes, no := t.Context(), true, false
		b.SetLimits(queue.Limits{MaxQueue: 3})
		first, second := b.enqueue("a"), b.enqueue("b")
		require.True(t, b.steer(first, queue.Steering{Paused: &yes}).Paused)
		b.steer(first, queue.Steering{Paused: &yes}) // again
		require.Equal(t, []string{"b"}, b.order())
		require.Zero(t, must(b.Position(ctx, second.Key)), "it counts for nobody's position")
		_, err := b.Position(ctx, first.Key)
		require.ErrorIs(t, err, queue.ErrNotQueued)
		claim := func(ctx context.Context, j job.Job) error {
			_, err := b.Claim(ctx, queue.ClaimRequest{Key: j.Key, Instance: uuid.NewString(), Hub: "hub/1", Upstream: uuid.NewString()})
			return err
		}
		require.ErrorIs(t, claim(ctx, first), queue.ErrNotQueued)
		require.Len(t, must(b.Live(ctx, "tenant")), 2, "listings have it")
		b.enqueue("c")
		_, err = b.Enqueue(ctx, submission("d"))
		require.ErrorIs(t, err, queue.ErrFull, "it counts for the limits")
		before, bytes, err := b.Waiting(ctx, "tenant")
		require.NoError(t, err)
		must(b.Sweep(ctx, "hub/1", 10))
		after, same, err := b.Waiting(ctx, "tenant")
		require.NoError(t, err)
		require.Equal(t, []any{3, bytes}, []any{after, same})
		require.Equal(t, 3, before)
		require.Equal(t, []string{"b", "c"}, b.order(), "the sweep leaves it paused")

		require.False(t, b.steer(first, queue.Steering{Paused: &no}).Paused)
		require.Equal(t, []string{"a", "b", "c"}, b.order(), "its old place")
		require.NoError(t, claim(ctx, first))
		_, err = b.Steer(ctx, first.Key, queue.Steering{Paused: &yes})
		require.ErrorIs(t, err, queue.ErrNotQueued)
		_, err = b.Steer(ctx, "none", queue.Steering{Paused: &yes})
		require.ErrorIs(t, err, queue.ErrNotFound)

		b.steer(second, queue.Steering{Paused: &yes})
		must(b.Cancel(ctx, second.Key))
		require.Equal(t, []string{"c"}, b.order())
		n, _, err := b.Waiting(ctx, "tenant")
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Zero(t, must(b.db.Client().Exists(ctx, b.db.Key("q", "paused")).Result()), "nothing is left of it")
	})
}
