package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// TestCancel cancels at every point of a job's life.
func TestCancel(t *testing.T) {
	t.Parallel()
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		cancel := func(key string) queue.CancelResult {
			t.Helper()
			result, err := b.Cancel(ctx, key)
			require.NoError(t, err)
			return result
		}
		waiting := b.enqueue("waiting")
		require.Equal(t, job.Queued, cancel(waiting.Key).Was)
		require.Equal(t, job.Cancelled, b.get(waiting.Key).State)
		require.Equal(t, job.Cancelled, cancel(waiting.Key).Was, "again")
		requireHistory(t, b, "tenant")
		same, err := b.Enqueue(ctx, submission("waiting"))
		require.NoError(t, err)
		require.False(t, same.Existing, "as if it had never been")
		_, err = b.Claim(ctx, queue.ClaimRequest{Key: waiting.Key, Instance: "gpu"})
		require.ErrorIs(t, err, queue.ErrNotQueued)
		_, err = b.Body(ctx, waiting.Key)
		require.ErrorIs(t, err, queue.ErrNotFound)

		// A claimed job: its holder ends it, with whatever outcome it reports. The job may
		// have been done before the interrupt arrived.
		for i, state := range []job.State{job.Leased, job.Running} {
			for k, outcome := range []job.State{job.Cancelled, job.Done} {
				id := fmt.Sprint("taken", i, k)
				run := b.claim(b.enqueue(id), "gpu").Run
				if state == job.Running {
					require.NoError(t, b.Started(ctx, run))
				}
				result := cancel(run.Key)
				require.Equal(t, state, result.Was)
				require.Equal(t, run, result.Run)
				require.Equal(t, state, cancel(run.Key).Was, "again")
				if state == job.Leased {
					require.ErrorIs(t, b.Started(ctx, run), queue.ErrCancelled, "a holder that was not told in time")
					require.Equal(t, job.Running, b.get(run.Key).State)
					state = job.Running
				}
				j, err := b.Requeue(ctx, run, queue.RequeueOptions{Reason: "lost"})
				require.ErrorIs(t, err, queue.ErrCancelled, "it must not run again")
				require.Equal(t, state, j.State)
				require.NoError(t, b.Finish(ctx, run, queue.Outcome{State: outcome, Entry: []byte("{}")}))
				require.Equal(t, outcome, b.get(run.Key).State)
				require.Equal(t, outcome, cancel(run.Key).Was, "just ended")
				require.Equal(t, outcome, b.get(run.Key).State)
			}
		}
		_, err = b.Cancel(ctx, "unknown")
		require.ErrorIs(t, err, queue.ErrNotFound)
	})
}

func TestCancelWaiting(t *testing.T) {
	t.Parallel()
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		a, c := b.enqueue("a"), b.enqueue("c")
		run := b.claim(b.enqueue("b"), "gpu").Run
		removed, err := b.CancelWaiting(ctx, []string{a.Key, run.Key, "unknown", c.Key, c.Key})
		require.NoError(t, err)
		require.Equal(t, []string{a.Key, c.Key}, removed)
		result, err := b.Renew(ctx, "hub/1", []job.Run{run})
		require.NoError(t, err)
		require.Equal(t, queue.RenewResult{}, result, "a running one is left alone")
		live, err := b.LiveOf(ctx, "caller")
		require.NoError(t, err)
		require.Equal(t, []string{"b"}, ids(live))
	})
}

// TestWithdraw takes jobs back at every point of their lives. Nothing of them is
// listed, counted or kept, and the same prompt can be sent again.
func TestWithdraw(t *testing.T) {
	t.Parallel()
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		for i, state := range []job.State{job.Queued, job.Leased, job.Running} {
			id := fmt.Sprint("taken", i)
			run := b.enqueue(id).Run
			run.Key = b.find(id).Key
			if state != job.Queued {
				run = b.claim(b.get(run.Key), "gpu").Run
			}
			if state == job.Running {
				require.NoError(t, b.Started(ctx, run))
			}
			result, err := b.Withdraw(ctx, run.Key)
			require.NoError(t, err)
			require.Equal(t, state, result.Was)
			require.Equal(t, state != job.Queued, result.Withdrawn)
			live, err := b.LiveOf(ctx, "caller")
			require.NoError(t, err)
			require.Empty(t, live)
			n, err := b.Count(ctx, "caller")
			require.NoError(t, err)
			require.Zero(t, n)
			if state != job.Queued {
				require.True(t, b.get(run.Key).Withdrawn)
				_, err = b.Claim(ctx, queue.ClaimRequest{Key: b.enqueue("other" + id).Key, Instance: "gpu", Hub: "hub/1"})
				require.ErrorIs(t, err, queue.ErrTaken, "the instance is still busy with it")
				b.withdraw("other" + id)
				again, err := b.Withdraw(ctx, run.Key)
				require.NoError(t, err)
				require.Equal(t, state, again.Was)
				require.ErrorIs(t, b.Started(ctx, run), queue.ErrWithdrawn)
				renewed, err := b.Renew(ctx, run.Hub, []job.Run{run})
				require.NoError(t, err)
				require.Equal(t, queue.RenewResult{Withdrawn: []job.Run{run}}, renewed)
				_, err = b.Requeue(ctx, run, queue.RequeueOptions{Reason: "lost"})
				require.ErrorIs(t, err, queue.ErrCancelled, "it must not run again")
				for range 2 {
					require.ErrorIs(t, b.Finish(ctx, run, queue.Outcome{State: job.Done, Entry: []byte("{}")}), queue.ErrWithdrawn)
				}
			}
			requireHistory(t, b, "tenant")
			require.Equal(t, job.Cancelled, b.get(run.Key).State)
			_, err = b.Body(ctx, run.Key)
			require.ErrorIs(t, err, queue.ErrNotFound)
			same, err := b.Enqueue(ctx, submission(id))
			require.NoError(t, err)
			require.False(t, same.Existing, "as if it had never been")
			b.withdraw(id)
		}
		// A client that was told of the interrupt also hears of the end.
		run := b.claim(b.enqueue("interrupted"), "gpu").Run
		_, err := b.Cancel(ctx, run.Key)
		require.NoError(t, err)
		late, err := b.Withdraw(ctx, run.Key)
		require.NoError(t, err)
		require.False(t, late.Withdrawn)
		require.NoError(t, b.Finish(ctx, run, queue.Outcome{State: job.Cancelled, Entry: []byte("{}")}))
		requireHistory(t, b, "tenant", "interrupted:{}")
	})
}

func (b *bench) find(id string) job.Job {
	b.t.Helper()
	j, err := b.Find(b.t.Context(), "tenant", id)
	require.NoError(b.t, err)
	return j
}

func (b *bench) withdraw(id string) {
	b.t.Helper()
	_, err := b.Withdraw(b.t.Context(), b.find(id).Key)
	require.NoError(b.t, err)
}

func TestTombstones(t *testing.T) {
	t.Parallel()
	each(t, queue.Options{Tombstone: time.Millisecond}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		older := b.enqueue("a")
		require.NoError(t, b.Finish(ctx, b.claim(older, "gpu").Run, done("{}")))
		j := b.enqueue("a", func(s *queue.Submission) { s.BodyHash = "other" })
		alone := b.enqueue("b")
		for _, key := range []string{j.Key, alone.Key} {
			_, err := b.Cancel(ctx, key)
			require.NoError(t, err)
		}
		require.Eventually(t, func() bool {
			_, err := b.Sweep(ctx, "hub/1", 1)
			require.NoError(t, err)
			_, err = b.Get(ctx, j.Key)
			_, err2 := b.Get(ctx, alone.Key)
			return errorIs(err, queue.ErrNotFound) && errorIs(err2, queue.ErrNotFound)
		}, time.Minute, 5*time.Millisecond)
		found, err := b.Find(ctx, "tenant", "a")
		require.NoError(t, err)
		require.Equal(t, older.Key, found.Key, "the ended one can be found again")
		_, err = b.Find(ctx, "tenant", "b")
		require.ErrorIs(t, err, queue.ErrNotFound)
	})
}
