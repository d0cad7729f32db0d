package queue_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// An instance is free again after each way to give it back.
func TestInstanceIsFreed(t *testing.T) {
	t.Parallel()
	ways := map[string]func(b *bench, j job.Job) error{
		"release": func(b *bench, j job.Job) error { return b.Release(b.t.Context(), j.Run) },
		"finish":  func(b *bench, j job.Job) error { return b.Finish(b.t.Context(), j.Run, done("{}")) },
		"requeue": func(b *bench, j job.Job) error {
			_, err := b.Requeue(b.t.Context(), j.Run, queue.RequeueOptions{})
			return err
		},
		"exhausted": func(b *bench, j job.Job) error {
			tired := on(b.t, b.db, queue.Options{MaxAttempts: 1})
			_, err := tired.Requeue(b.t.Context(), j.Run, queue.RequeueOptions{})
			require.ErrorIs(b.t, err, queue.ErrExhausted)
			return nil
		},
		"release twice": func(b *bench, j job.Job) error {
			require.NoError(b.t, b.Release(b.t.Context(), j.Run))
			b.claim(b.enqueue("between"), "gpu")
			require.NoError(b.t, b.Release(b.t.Context(), j.Run), "said again")
			_, err := b.Claim(b.t.Context(), queue.ClaimRequest{Key: b.enqueue("no").Key, Instance: "gpu", Upstream: "u"})
			require.ErrorIs(b.t, err, queue.ErrTaken, "the next run keeps it")
			require.NoError(b.t, b.Finish(b.t.Context(), j.Run, done("{}")))
			_, err = b.Claim(b.t.Context(), queue.ClaimRequest{Key: b.enqueue("no2").Key, Instance: "gpu", Upstream: "u"})
			require.ErrorIs(b.t, err, queue.ErrTaken, "also after the end")
			return nil
		},
	}
	for name, give := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, queue.Options{}, func(t *testing.T, b *bench) {
				j := b.claim(b.enqueue("a"), "gpu")
				next := b.enqueue("b")
				_, err := b.Claim(t.Context(), queue.ClaimRequest{Key: next.Key, Instance: "gpu", Upstream: "u"})
				require.ErrorIs(t, err, queue.ErrTaken)
				require.NoError(t, give(b, j))
				if name != "release twice" {
					b.claim(next, "gpu")
				}
			})
		})
	}
}

func TestRequeue(t *testing.T) {
	t.Parallel()
	each(t, queue.Options{MaxAttempts: 2}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		a := b.enqueue("a")
		b.enqueue("b")
		waiting := func() []string {
			heads, err := b.Peek(ctx, []string{"class"}, 10)
			require.NoError(t, err)
			return ids(heads)
		}
		run := b.claim(a, "gpu").Run
		require.Equal(t, []string{"b"}, waiting())
		back, err := b.Requeue(ctx, run, queue.RequeueOptions{Reason: "taken back", Excused: true})
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b"}, waiting(), "the old place")
		require.Equal(t, a.Rank, back.Rank)
		require.Zero(t, back.Attempts)
		require.Equal(t, job.Queued, back.State)
		require.Equal(t, "taken back", back.Reason)

		run = b.claim(a, "gpu").Run
		back, err = b.Requeue(ctx, run, queue.RequeueOptions{Reason: "died: 1\nline two"})
		require.NoError(t, err)
		require.Equal(t, 1, back.Attempts)
		run = b.claim(a, "gpu").Run
		last, err := b.Requeue(ctx, run, queue.RequeueOptions{Reason: "died again"})
		require.ErrorIs(t, err, queue.ErrExhausted)
		require.Equal(t, []string{"taken back", "died: 1\nline two", "died again"}, last.Lost)
		require.Equal(t, job.Leased, last.State, "the caller still holds it")
		again, err := b.Requeue(ctx, run, queue.RequeueOptions{Reason: "died again"})
		require.ErrorIs(t, err, queue.ErrExhausted)
		require.Equal(t, last, again, "said again it changes nothing")

		// The holder dies: the next one learns that only the end is missing.
		b.expire(run)
		orphans, err := b.Sweep(ctx, "hub/2", 10)
		require.NoError(t, err)
		require.Len(t, orphans, 1)
		require.True(t, orphans[0].Exhausted)
		require.NoError(t, b.Finish(ctx, orphans[0].Run, queue.Outcome{State: job.Failed, Entry: []byte("{}"), Reason: "three times"}))
		require.Equal(t, "three times", b.get(a.Key).Reason)
	})
}

// Two instances that die with a job are enough, however many attempts it has.
func TestRequeueAfterKills(t *testing.T) {
	t.Parallel()
	each(t, queue.Options{MaxAttempts: 9}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		a := b.enqueue("a")
		back, err := b.Requeue(ctx, b.claim(a, "gpu").Run, queue.RequeueOptions{Reason: "lost"})
		require.NoError(t, err)
		require.Zero(t, back.Kills)
		back, err = b.Requeue(ctx, b.claim(a, "gpu").Run, queue.RequeueOptions{Reason: "died", Killed: true})
		require.NoError(t, err)
		require.Equal(t, []int{2, 1}, []int{back.Attempts, back.Kills})
		back, err = b.Requeue(ctx, b.claim(a, "gpu").Run, queue.RequeueOptions{Reason: "taken back", Excused: true})
		require.NoError(t, err)
		require.Equal(t, []int{2, 1}, []int{back.Attempts, back.Kills})
		run := b.claim(a, "gpu").Run
		last, err := b.Requeue(ctx, run, queue.RequeueOptions{Reason: "died, too", Killed: true})
		require.ErrorIs(t, err, queue.ErrExhausted)
		require.Equal(t, 2, last.Kills)
		require.Equal(t, []string{"lost", "died", "taken back", "died, too"}, last.Lost)
		again, err := b.Requeue(ctx, run, queue.RequeueOptions{Reason: "died, too", Killed: true})
		require.ErrorIs(t, err, queue.ErrExhausted)
		require.Equal(t, last, again, "said again it changes nothing")
	})
}
