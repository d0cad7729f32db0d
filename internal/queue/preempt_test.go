package queue_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// A bulk run is given up once, for a waiting interactive job that has been given none lately.
func TestPreempt(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		run := func(id, instance string, band job.Band) job.Run {
			return b.claim(b.enqueue(id, inBand(band)), instance).Run
		}
		bulk, other, normal := run("bulk", "1", job.Bulk), run("other", "2", job.Bulk), run("normal", "3", job.Normal)
		person := b.enqueue("person", inBand(job.Interactive))
		second := b.enqueue("second", inBand(job.Interactive))
		plain := b.enqueue("plain")
		started := b.claim(b.enqueue("started", inBand(job.Interactive)), "4").Run
		may := func(r job.Run, waiting string) bool {
			return must(b.Preempt(ctx, r, waiting, time.Hour))
		}
		require.False(t, may(bulk, plain.Key), "only for interactive jobs")
		require.False(t, may(normal, person.Key), "only bulk runs")
		require.False(t, may(bulk, started.Key), "it does not wait")
		require.False(t, may(bulk, "nobody"))
		require.False(t, b.get(bulk.Key).Preempted)
		require.True(t, may(bulk, person.Key))
		require.True(t, b.get(bulk.Key).Preempted)
		require.False(t, may(other, person.Key), "one is enough")
		require.False(t, may(bulk, second.Key), "it makes way already")

		require.NoError(t, b.Started(t.Context(), bulk))
		requeued := must(b.Requeue(ctx, bulk, queue.RequeueOptions{Unused: true}))
		require.True(t, requeued.Preempted)
		require.ErrorIs(t, errOf(b.Preempt(ctx, bulk, second.Key, time.Hour)), queue.ErrStale)
		again := b.claim(requeued, "1")
		require.True(t, again.Preempted)
		require.False(t, may(again.Run, second.Key), "never twice")
		must(b.Cancel(ctx, other.Key))
		require.False(t, may(other, second.Key), "it is about to end")
	})
}

// A job that waits behind the run gets its instance; after a while another run may make way.
func TestPreemptForNext(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		bulk := b.claim(b.enqueue("bulk", inBand(job.Bulk)), "gpu").Run
		require.NoError(t, b.Started(t.Context(), bulk))
		next := must(b.ahead(b.enqueue("next", inBand(job.Interactive)).Key, "hub/1"))
		may := must(b.Preempt(t.Context(), bulk, next.Key, time.Nanosecond))
		require.True(t, may)
		other := b.claim(b.enqueue("other", inBand(job.Bulk)), "2").Run
		require.Eventually(t, func() bool {
			may, err := b.Preempt(t.Context(), other, next.Key, time.Hour)
			return err == nil && may
		}, time.Minute, time.Millisecond)
	})
}

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
		require.ErrorIs(t, errOf(b.ahead(second.Key, "hub/1")), queue.ErrTaken, "the run has not begun")
		require.NoError(t, b.Started(ctx, first.Run))
		require.ErrorIs(t, errOf(b.ahead(second.Key, "hub/2")), queue.ErrTaken, "the run is another hub's")
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
		require.ErrorIs(t, errOf(b.Claim(ctx, queue.ClaimRequest{Key: third.Key, Instance: "gpu", Hub: "hub/1", Upstream: "u"})), queue.ErrTaken)
		require.NoError(t, b.Release(ctx, second.Run))
		third = must(b.ahead(third.Key, "hub/1"))
		require.False(t, third.Ahead, "the instance is free")
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
