package queue_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// ahead asks for a run behind the one that the instance gpu has.
func (b *bench) ahead(key, hub string) (job.Job, error) {
	return b.Claim(b.t.Context(), queue.ClaimRequest{
		Key: key, Tenant: "tenant", Instance: "gpu", Hub: hub, Upstream: uuid.NewString(), Ahead: true,
	})
}

// A job may wait behind a run of the same hub that has begun. It gets the instance when it begins,
// whether the run before it has been released by then or not.
func TestClaimAhead(t *testing.T) {
	eachOf(t, queue.Options{}, map[string]bool{"released before": true, "released after": false}, func(t *testing.T, b *bench, early bool) {
		ctx := t.Context()
		first := b.claim(b.enqueue("a"), "gpu")
		second, third := b.enqueue("b"), b.enqueue("c")
		_, err := b.ahead(second.Key, "hub/1")
		require.ErrorIs(t, err, queue.ErrTaken, "the run has not begun")
		require.NoError(t, b.Started(ctx, first.Run))
		_, err = b.ahead(second.Key, "hub/2")
		require.ErrorIs(t, err, queue.ErrTaken, "the run is another hub's")
		second = must(b.ahead(second.Key, "hub/1"))
		require.True(t, second.Ahead)
		require.Equal(t, job.Leased, second.State)
		require.Equal(t, job.Queued, second.Seen().State)

		if early {
			require.NoError(t, b.Release(ctx, first.Run))
		}
		require.NoError(t, b.Started(ctx, second.Run))
		require.False(t, b.get(second.Key).Ahead)
		if !early {
			require.NoError(t, b.Release(ctx, first.Run))
		}
		_, err = b.Claim(ctx, queue.ClaimRequest{Key: third.Key, Instance: "gpu", Hub: "hub/1", Upstream: "u"})
		require.ErrorIs(t, err, queue.ErrTaken)
		require.NoError(t, b.Release(ctx, second.Run))
		third = must(b.ahead(third.Key, "hub/1"))
		require.False(t, third.Ahead, "the instance is free")
	})
}

// A job that is taken back is as it was, in its place.
func TestUnusedRunLeavesNoTrace(t *testing.T) {
	each(t, queue.Options{MaxAttempts: 1}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		require.NoError(t, b.Started(ctx, b.claim(b.enqueue("a"), "gpu").Run))
		next, last := b.enqueue("b"), b.enqueue("c")
		for range 3 {
			j := must(b.ahead(next.Key, "hub/1"))
			must(b.Requeue(ctx, j.Run, queue.RequeueOptions{Unused: true}))
		}
		j := b.get(next.Key)
		require.Equal(t, job.Queued, j.State)
		require.Zero(t, j.Attempts)
		require.Zero(t, j.Excuses)
		require.Empty(t, j.Lost)
		w := must(b.Window(ctx, queue.Wanted{}, 0, 2))
		require.Equal(t, []string{next.Key, last.Key}, []string{w.Jobs[0].Key, w.Jobs[1].Key})
	})
}

// A job's tenant pays for its run, but not for the one that it waited behind.
func TestWaitingAtAnInstanceIsFree(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		first := b.claim(b.enqueue("a"), "gpu")
		require.NoError(t, b.Started(ctx, first.Run))
		j := must(b.ahead(b.enqueue("b").Key, "hub/1"))
		record := b.db.Key("q", "job", j.Key)
		require.NoError(t, b.db.Client().HSet(ctx, record, "claimed", "1").Err())
		require.NoError(t, b.Started(ctx, j.Run))
		require.Greater(t, must(b.db.Client().HGet(ctx, record, "claimed").Int64()), int64(1))
	})
}

// Cancelling a job that waits at an instance withdraws it and asks its holder to take it back.
// CancelWaiting leaves one that has begun running.
func TestCancelAhead(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		b.KeepCopies()
		first := b.claim(b.enqueue("a"), "gpu")
		require.NoError(t, b.Started(ctx, first.Run))
		j := must(b.ahead(b.enqueue("b").Key, "hub/1"))
		gone := must(b.CancelWaiting(ctx, []string{first.Key, j.Key}))
		require.Equal(t, []string{j.Key}, gone)
		gone = must(b.CancelWaiting(ctx, []string{j.Key}))
		require.Empty(t, gone)
		require.Len(t, must(b.Live(ctx, first.Tenant)), 1)
		require.Equal(t, []job.Run{j.Run}, must(b.Renew(ctx, "hub/1", []job.Run{j.Run})).Withdrawn)
		_, err := b.Requeue(ctx, j.Run, queue.RequeueOptions{Unused: true})
		require.ErrorIs(t, err, queue.ErrCancelled)
		require.ErrorIs(t, b.Finish(ctx, j.Run, done("{}")), queue.ErrWithdrawn)
		require.Equal(t, job.Cancelled, b.get(j.Key).State)
	})
}

// A claim releases the run that ended at the instance before it, and no other. It tells how many
// classes still have waiting jobs.
func TestClaimAfter(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		first := b.claim(b.enqueue("a"), "gpu")
		second, third := b.enqueue("b"), b.enqueue("c")
		next := func(key string, after job.Run) (job.Job, int, error) {
			return b.ClaimCounting(ctx, queue.ClaimRequest{
				Key: key, Tenant: first.Tenant, Instance: "gpu", Hub: "hub/1", Upstream: uuid.NewString(), After: after,
			})
		}
		old := first.Run
		old.Fence--
		for _, wrong := range []job.Run{{}, old, {Key: second.Key, Fence: first.Run.Fence}} {
			_, _, err := next(second.Key, wrong)
			require.ErrorIs(t, err, queue.ErrTaken)
		}
		second, left, err := next(second.Key, first.Run)
		require.NoError(t, err)
		require.Equal(t, 1, left)
		require.NoError(t, b.Release(ctx, first.Run), "said again")
		require.NoError(t, b.Finish(ctx, first.Run, done("{}")), "its end comes later")
		_, _, err = next(third.Key, first.Run)
		require.ErrorIs(t, err, queue.ErrTaken, "the next run keeps the instance")
		_, left, err = next(third.Key, second.Run)
		require.NoError(t, err)
		require.Zero(t, left)
	})
}

// A run that must end and was released keeps no instance, even if it begins there after all.
func TestAReleasedRunTakesNoInstance(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		first := b.claim(b.enqueue("a"), "gpu")
		require.NoError(t, b.Started(ctx, first.Run))
		second := must(b.ahead(b.enqueue("b").Key, "hub/1"))
		require.NoError(t, b.Release(ctx, second.Run))
		require.NoError(t, b.Started(ctx, second.Run))
		require.NoError(t, b.Release(ctx, first.Run))
		taken := must(b.Taken(ctx))
		require.Empty(t, taken)
		require.NoError(t, b.Finish(ctx, second.Run, done("{}")))
		taken = must(b.Taken(ctx))
		require.Empty(t, taken)
	})
}
