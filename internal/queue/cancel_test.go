package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// TestWithdraw withdraws jobs at every point of their lives. Nothing of them is listed, counted or
// kept, and the same prompt can be sent again.
func TestWithdraw(t *testing.T) {
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
			result := must(b.Withdraw(ctx, run.Key, false))
			require.Equal(t, state, result.Was)
			require.Equal(t, state != job.Queued, result.Withdrawn)
			require.Empty(t, must(b.LiveOf(ctx, "caller")))
			require.Zero(t, must(b.Count(ctx, "caller")))
			if state != job.Queued {
				require.True(t, b.get(run.Key).Withdrawn)
				_, err := b.Claim(ctx, queue.ClaimRequest{Key: b.enqueue("other" + id).Key, Instance: "gpu", Hub: "hub/1"})
				require.ErrorIs(t, err, queue.ErrTaken, "the instance is still busy with it")
				b.withdraw("other" + id)
				require.Equal(t, state, must(b.Withdraw(ctx, run.Key, false)).Was)
				require.ErrorIs(t, b.Started(ctx, run), queue.ErrWithdrawn)
				require.Equal(t, queue.RenewResult{Withdrawn: []job.Run{run}}, must(b.Renew(ctx, run.Hub, []job.Run{run})))
				require.ErrorIs(t, errOf(b.Requeue(ctx, run, queue.RequeueOptions{Reason: "lost"})), queue.ErrCancelled, "it must not run again")
				for range 2 {
					require.ErrorIs(t, b.Finish(ctx, run, queue.Outcome{State: job.Done, Entry: []byte("{}")}), queue.ErrWithdrawn)
				}
			}
			requireHistory(t, b, "tenant")
			require.Equal(t, job.Cancelled, b.get(run.Key).State)
			require.ErrorIs(t, errOf(b.Body(ctx, run.Key)), queue.ErrNotFound)
			require.False(t, must(b.Enqueue(ctx, submission(id))).Existing, "as if it had never been")
			b.withdraw(id)
		}
		// A client that was told of the interrupt also hears of the end.
		run := b.claim(b.enqueue("interrupted"), "gpu").Run
		must(b.Cancel(ctx, run.Key))
		require.False(t, must(b.Withdraw(ctx, run.Key, false)).Withdrawn)
		require.NoError(t, b.Finish(ctx, run, queue.Outcome{State: job.Cancelled, Entry: []byte("{}")}))
		requireHistory(t, b, "tenant", "interrupted:{}")
	})
}

func (b *bench) find(id string) job.Job {
	b.t.Helper()
	return must(b.Find(b.t.Context(), "tenant", id))
}

func (b *bench) withdraw(id string) {
	b.t.Helper()
	must(b.Withdraw(b.t.Context(), b.find(id).Key, false))
}

func TestTombstones(t *testing.T) {
	each(t, queue.Options{Tombstone: time.Millisecond}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		older := b.enqueue("a")
		require.NoError(t, b.Finish(ctx, b.claim(older, "gpu").Run, done("{}")))
		j := b.enqueue("a", func(s *queue.Submission) { s.BodyHash = "other" })
		alone := b.enqueue("b")
		for _, key := range []string{j.Key, alone.Key} {
			must(b.Cancel(ctx, key))
		}
		require.Eventually(t, func() bool {
			must(b.Sweep(ctx, "hub/1", 1))
			_, err := b.Get(ctx, j.Key)
			_, err2 := b.Get(ctx, alone.Key)
			return errorIs(err, queue.ErrNotFound) && errorIs(err2, queue.ErrNotFound)
		}, time.Minute, 5*time.Millisecond)
		require.Equal(t, older.Key, must(b.Find(ctx, "tenant", "a")).Key, "the ended one can be found again")
		require.ErrorIs(t, errOf(b.Find(ctx, "tenant", "b")), queue.ErrNotFound)
	})
}

// atDoor marks a submission whose client is waiting for an answer.
func atDoor(s *queue.Submission) { s.Door = time.Hour }

// A refusal either reaches the client or comes too late. There is nothing in between.
func TestDoor(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		older := b.claim(b.enqueue("id", func(s *queue.Submission) { s.BodyHash = "older" }), "gpu")
		require.NoError(t, b.Finish(ctx, older.Run, done(`{"older": true}`)))

		j := b.enqueue("id", atDoor)
		require.True(t, j.AtDoor(time.Now()))
		requireListed(t, b)
		require.Equal(t, []string{"id"}, ids(must(b.Live(ctx, ""))), "what it needs is kept")
		run := b.claim(j, "gpu").Run
		require.NoError(t, b.Reject(ctx, run, []byte(`{"error": "no"}`)))
		require.NoError(t, b.Reject(ctx, run, []byte(`{"error": "no"}`)), "the same refusal again")
		for range 2 { // a hub that lost the first answer asks again
			answer, refused, err := b.Admit(ctx, j.Key)
			require.NoError(t, err)
			require.True(t, refused)
			require.JSONEq(t, `{"error": "no"}`, string(answer))
		}
		requireListed(t, b)
		live, waiting, _, err := b.CountAll(ctx)
		require.NoError(t, err)
		require.Zero(t, live+waiting)
		require.Equal(t, older.Key, must(b.Find(ctx, "tenant", "id")).Key, "the id is the older job's again")
		requireHistory(t, b, "tenant", `id:{"older": true}`)
		require.ErrorIs(t, errOf(b.Body(ctx, j.Key)), queue.ErrNotFound)
		require.ErrorIs(t, b.Finish(ctx, run, done(`{}`)), queue.ErrStale)
		b.claim(b.enqueue("next", atDoor), "gpu") // the instance is free
	})
}

// Once the client has been told that its prompt is accepted, that cannot be taken back.
func TestDoorClosed(t *testing.T) {
	eachOf(t, queue.Options{}, map[string]func(t *testing.T, b *bench, j job.Job) job.Run{
		"admitted while it waits": func(t *testing.T, b *bench, j job.Job) job.Run {
			_, refused, err := b.Admit(t.Context(), j.Key)
			require.NoError(t, err)
			require.False(t, refused)
			return b.claim(j, "gpu").Run
		},
		"admitted while it is asked": func(t *testing.T, b *bench, j job.Job) job.Run {
			run := b.claim(j, "gpu").Run
			_, refused, err := b.Admit(t.Context(), j.Key)
			require.NoError(t, err)
			require.False(t, refused)
			return run
		},
		"started": func(t *testing.T, b *bench, j job.Job) job.Run {
			run := b.claim(j, "gpu").Run
			require.NoError(t, b.Started(t.Context(), run))
			return run
		},
		"given back and taken again": func(t *testing.T, b *bench, j job.Job) job.Run {
			back := must(b.Requeue(t.Context(), b.claim(j, "gpu").Run, queue.RequeueOptions{Excused: true}))
			require.True(t, back.AtDoor(time.Now()), "another instance may answer for it")
			_, _, err := b.Admit(t.Context(), j.Key)
			require.NoError(t, err)
			return b.claim(j, "gpu2").Run
		},
	}, func(t *testing.T, b *bench, pass func(t *testing.T, b *bench, j job.Job) job.Run) {
		run := pass(t, b, b.enqueue("id", atDoor))
		require.ErrorIs(t, b.Reject(t.Context(), run, []byte(`{}`)), queue.ErrAnswered)
		requireListed(t, b, "id")
		require.NoError(t, b.Finish(t.Context(), run, done(`{}`)))
		requireHistory(t, b, "tenant", "id:{}")
	})
}

// The hub at the door may die. The job then goes on as an accepted one.
func TestDoorOfADeadHub(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		j := b.enqueue("id", func(s *queue.Submission) { s.Door = time.Millisecond })
		require.Eventually(t, func() bool {
			live, err := b.Live(t.Context(), "tenant")
			return err == nil && len(live) == 1
		}, time.Minute, time.Millisecond)
		run := b.claim(j, "gpu").Run
		require.ErrorIs(t, b.Reject(t.Context(), run, []byte(`{}`)), queue.ErrAnswered)
	})
}

// Cancelling a job at the door succeeds, and its client is told 200, as if the
// cancel had come a moment later.
func TestDoorAndCancel(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		j := b.enqueue("waiting", atDoor)
		must(b.Cancel(ctx, j.Key))
		_, refused, err := b.Admit(ctx, j.Key)
		require.NoError(t, err)
		require.False(t, refused)
		requireListed(t, b)

		run := b.claim(b.enqueue("taken", atDoor), "gpu").Run
		must(b.Cancel(ctx, run.Key))
		require.NoError(t, b.Reject(ctx, run, []byte(`{}`)), "it was never there to be cancelled")
		requireListed(t, b)
		requireHistory(t, b, "tenant")
		require.ErrorIs(t, b.Reject(ctx, job.Run{Key: run.Key, Fence: run.Fence - 1}, nil), queue.ErrStale)
	})
}

// requireListed checks what the listings of the tenant and of the caller show.
func requireListed(t *testing.T, b *bench, want ...string) {
	t.Helper()
	of := must(b.Live(t.Context(), "tenant"))
	require.ElementsMatch(t, want, ids(of))
	of = must(b.LiveOf(t.Context(), "caller"))
	require.ElementsMatch(t, want, ids(of))
}
