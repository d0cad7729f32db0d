package queue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// atDoor marks a submission whose client waits for an answer.
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
		_, err = b.Body(ctx, j.Key)
		require.ErrorIs(t, err, queue.ErrNotFound)
		require.ErrorIs(t, b.Finish(ctx, run, done(`{}`)), queue.ErrStale)
		b.claim(b.enqueue("next", atDoor), "gpu") // the instance is free
	})
}

// Once the client has been told that its prompt is accepted, nothing takes it back.
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
