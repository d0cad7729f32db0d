package queue_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// A hub is killed, or ends in order, and Redis loses its last writes before the next process of the
// hub is there. That one has the notes of the first.
func TestNextProcessPutsBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := queue.Options{Sealer: vault(t, "s"), Notes: t.TempDir()}
	hub := func() *losing {
		b := on(t, redistest.Open(t, server.URL()), o)
		t.Cleanup(b.Close)
		require.NoError(t, b.Heal(t.Context()))
		return &losing{bench: b, server: server}
	}
	first := hub()
	rewind := server.Save()
	jobs, runs := map[string]*losing{}, map[string]job.Run{}
	for _, id := range []string{"waits", "runs", "ended", "told", "deleted", "cancelled"} {
		l := &losing{bench: first.bench, server: server, s: full(id)}
		l.accept()
		if id != "waits" && id != "cancelled" {
			runs[id] = first.claim(l.j, "gpu of "+id).Run
			require.NoError(t, first.Started(t.Context(), runs[id]))
		}
		jobs[id] = l
	}
	for _, id := range []string{"ended", "told", "deleted"} {
		require.NoError(t, first.Finish(t.Context(), runs[id], done(`{"x":1}`)))
	}
	require.NoError(t, first.DeliveredEnds(t.Context(), queue.Confirmed{Tenant: "tenant", ID: "told"}))
	require.NoError(t, first.DeleteHistory(t.Context(), "tenant", []string{"deleted"}))
	must(first.Cancel(t.Context(), jobs["cancelled"].j.Key))
	first.Close()
	rewind()
	for range 2 { // the third process has nothing left to do
		next := hub()
		live := must(next.Live(t.Context(), ""))
		require.Equal(t, []string{"waits", "runs"}, ids(live))
		require.Equal(t, []any{jobs["waits"].j.Rank, jobs["waits"].j.Number, jobs["waits"].j.Requester, jobs["waits"].j.BodyHash},
			[]any{live[0].Rank, live[0].Number, live[0].Requester, live[0].BodyHash})
		require.Equal(t, jobs["waits"].s.Body, must(next.Body(t.Context(), live[0].Key)))
		require.Equal(t, job.Running, live[1].State)
		require.Equal(t, []any{runs["runs"].Fence, runs["runs"].Upstream, "gpu of runs"}, []any{live[1].Run.Fence, live[1].Run.Upstream, live[1].Run.Instance})
		requireHistory(t, next.bench, "tenant", `ended:{"x":1}`, `told:{"x":1}`)
		require.Len(t, must(next.Undelivered(t.Context(), "tenant", "client")), 1, "told was confirmed")
		next.Close()
	}
}

// What the process before has noted is not put back if Redis has lost nothing, or knows better.
func TestNextProcessPutsNothingBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := queue.Options{Notes: t.TempDir()}
	other := on(t, redistest.Open(t, server.URL()), queue.Options{Tombstone: time.Millisecond})
	first := on(t, redistest.Open(t, server.URL()), o)
	require.NoError(t, first.Heal(t.Context()))
	run := first.claim(first.enqueue("runs"), "gpu").Run
	waits, deleted := first.enqueue("waits"), first.enqueue("deleted")
	first.Close() // it hears nothing of what follows
	must(other.Cancel(t.Context(), waits.Key))
	must(other.Sweep(t.Context(), "hub/2", 1))
	orphan := must(other.Adopt(t.Context(), run, "hub/2"))
	require.NoError(t, other.Finish(t.Context(), other.claim(deleted, "another gpu").Run, done(`{"x":1}`)))
	require.NoError(t, other.DeleteHistory(t.Context(), "tenant", []string{"deleted"}))
	server.Stop()
	server.Start()
	next := on(t, redistest.Open(t, server.URL()), o)
	defer next.Close()
	require.NoError(t, next.Heal(t.Context()))
	live := must(next.Live(t.Context(), ""))
	require.Equal(t, []string{"runs"}, ids(live))
	require.Equal(t, orphan.Fence, live[0].Run.Fence)
	requireHistory(t, next, "tenant")
}

// A job that was cancelled and that another hub puts back, or a replica has, is removed again.
func TestCancelledStaysCancelled(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	hub := func(notes string) *bench {
		b := on(t, redistest.Open(t, server.URL()), queue.Options{Notes: notes})
		t.Cleanup(b.Close)
		require.NoError(t, b.Heal(t.Context()))
		return b
	}
	notes := t.TempDir()
	first, other := hub(notes), hub("")
	rewind := server.Save()
	one := first.enqueue("one")
	first.Close()
	must(other.Cancel(t.Context(), one.Key))
	rewind()
	first = hub(notes)
	require.Equal(t, []string{"one"}, ids(must(first.Live(t.Context(), ""))), "all that it knows")
	require.NoError(t, other.Heal(t.Context()))
	require.Empty(t, must(other.Live(t.Context(), "")))

	two := first.enqueue("two")
	rewind = server.Save()
	must(other.CancelWaiting(t.Context(), []string{two.Key}))
	rewind()
	require.NoError(t, first.Heal(t.Context()))
	require.NoError(t, other.Heal(t.Context()))
	require.Empty(t, must(other.Live(t.Context(), "")))
	_, _, _, err := other.CountAll(t.Context())
	require.NoError(t, err)
	require.Zero(t, other.share(""))
}

// After a restart of Redis nobody gets a job for a moment: it may be running, and its hub has yet
// to say so.
func TestNoClaimRightAfterARestart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := on(t, redistest.Open(t, server.URL()), queue.Options{})
	require.NoError(t, b.Heal(t.Context()))
	j := b.enqueue("a")
	server.Stop()
	require.ErrorIs(t, errOf(b.Get(t.Context(), j.Key)), queue.ErrUnavailable)
	server.Start()
	request := queue.ClaimRequest{Key: j.Key, Instance: "gpu", Hub: "hub/1", Upstream: uuid.NewString(), SID: "sid"}
	require.ErrorIs(t, errOf(b.Claim(t.Context(), request)), queue.ErrUnavailable)
	require.Eventually(t, func() bool {
		_, err := b.Claim(t.Context(), request)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
}
