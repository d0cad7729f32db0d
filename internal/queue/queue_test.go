package queue_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
	"github.com/comfyhub/comfyhub/internal/testing/programs/programstest"
)

// Half of the tests wait for a redis-server to start.
func TestMain(m *testing.M) {
	programstest.SideBySide()
	leaktest.Main(m)
}

// bench is a queue with shortcuts for using it.
type bench struct {
	*queue.Queue
	t  testing.TB
	db *redis.DB
}

func on(t testing.TB, db *redis.DB, o queue.Options) *bench {
	q := must(queue.New(db, o))
	return &bench{Queue: q, t: t, db: db}
}

// each runs a test on both kinds of Redis.
func each(t *testing.T, o queue.Options, test func(t *testing.T, b *bench)) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) { test(t, on(t, db, o)) })
}

// orders are the orders in which jobs are given out, and whether each is fifo.
var orders = map[string]bool{"fair": false, "fifo": true}

// eachOf runs a test for each case on both kinds of Redis.
func eachOf[C any](t *testing.T, o queue.Options, cases map[string]C, test func(t *testing.T, b *bench, c C)) {
	t.Parallel()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { each(t, o, func(t *testing.T, b *bench) { test(t, b, c) }) })
	}
}

// submission returns an ordinary submission. change alters it.
func submission(id string, change ...func(*queue.Submission)) queue.Submission {
	s := queue.Submission{
		Key: uuid.NewString(), ID: id, Requester: job.Requester{Tenant: "tenant", Caller: "caller", Client: "client"}, Class: "class",
		BodyHash: "hash of " + id,
		Body: job.Body{
			Prompt: []byte(`{"1":{"seed":18446744073709551615}}`), Extra: []byte(`{}`), Outputs: []string{"9", "10"},
			Requires: []byte("requires"),
		},
	}
	for _, f := range change {
		f(&s)
	}
	return s
}

func (b *bench) enqueue(id string, change ...func(*queue.Submission)) job.Job {
	accepted := must(b.Enqueue(b.t.Context(), submission(id, change...)))
	require.False(b.t, accepted.Existing)
	return accepted.Job
}

func (b *bench) claim(j job.Job, instance string) job.Job {
	claimed := must(b.Claim(b.t.Context(), queue.ClaimRequest{
		Key: j.Key, Instance: instance, Hub: "hub/1", Upstream: uuid.NewString(), SID: "sid",
	}))
	return claimed
}

func (b *bench) get(key string) job.Job { return must(b.Get(b.t.Context(), key)) }

func done(entry string) queue.Outcome {
	return queue.Outcome{State: job.Done, Entry: []byte(entry), Summary: []byte("summary")}
}

func ids(jobs []job.Job) []string {
	out := make([]string, len(jobs))
	for i, j := range jobs {
		out[i] = j.ID
	}
	return out
}

// TestLife follows one job from its acceptance to its history entry.
func TestLife(t *testing.T) {
	each(t, queue.Options{Sealer: vault("s")}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		s := submission("a", func(s *queue.Submission) {
			s.Priority = 5
			s.Body.Secrets = []byte(`{"api_key_comfy_org":"k"}`)
			s.Body.Targets = []byte(`["9"]`)
			s.Body.Inputs = []byte("pins")
		})
		accepted := must(b.Enqueue(ctx, s))
		j := accepted.Job
		require.Equal(t, job.Queued, j.State)
		require.Equal(t, "0", j.Number)
		require.Equal(t, s.Key, j.Key)
		require.Positive(t, j.CreatedAt)
		require.Equal(t, j, b.get(s.Key))

		require.Equal(t, s.Body, must(b.Body(ctx, j.Key)))
		classes := must(b.Classes(ctx))
		require.Equal(t, map[string][]byte{"class": []byte("requires")}, classes)
		require.Equal(t, []job.Job{j}, must(b.Peek(ctx, []string{"class", "other"}, 3)))

		claimed := b.claim(j, "gpu1")
		require.Equal(t, job.Leased, claimed.State)
		require.Equal(t, 1, claimed.Attempts)
		require.Equal(t, j.Rank, claimed.Rank)
		require.Equal(t, claimed.Fence, claimed.Run.Fence)
		require.Equal(t, "gpu1", claimed.Run.Instance)
		require.Greater(t, claimed.Run.LeaseUntil, j.CreatedAt)
		classes = must(b.Classes(ctx))
		require.Empty(t, classes)

		run := claimed.Run
		require.NoError(t, b.Started(ctx, run))
		require.NoError(t, b.Started(ctx, run), "the start may be told twice")
		require.NoError(t, b.Progress(ctx, run, 0.25))
		running := b.get(j.Key)
		require.Equal(t, job.Running, running.State)
		require.InDelta(t, 0.25, running.Progress, 1e-9)
		require.Positive(t, running.StartedAt)
		live := must(b.Live(ctx, ""))
		require.Equal(t, []job.Job{running}, live)
		n := must(b.Count(ctx, "caller"))
		require.Equal(t, 1, n)

		require.NoError(t, b.Release(ctx, run))
		require.NoError(t, b.Finish(ctx, run, done(`{"x":1}`)))
		require.NoError(t, b.Finish(ctx, run, done(`{"x":2}`)), "the same end twice")
		ended := b.get(j.Key)
		require.Equal(t, job.Done, ended.State)
		require.Positive(t, ended.FinishedAt)
		require.ErrorIs(t, errOf(b.Body(ctx, j.Key)), queue.ErrNotFound)
		require.Equal(t, `{"x":1}`, string(must(must(b.HistoryEntry(ctx, "tenant", "a")).JSON())), "the first end counts")
		live = must(b.Live(ctx, ""))
		require.Empty(t, live)
		n = must(b.Count(ctx, "caller"))
		require.Zero(t, n)
		waiting := must(b.Undelivered(ctx, "tenant", "client"))
		require.Equal(t, []job.Job{ended}, waiting)
		require.NoError(t, b.DeliveredEnds(ctx, queue.Confirmed{Tenant: j.Tenant, ID: j.ID}))
		waiting = must(b.Undelivered(ctx, "tenant", "client"))
		require.Empty(t, waiting)
		require.Equal(t, []queue.Record{{Job: ended, Summary: []byte("summary"), Delivered: true}}, must(b.Ended(ctx, "tenant", queue.Page{})))
	})
}

// must returns the result of a call that does not fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// errOf returns the error of a call alone.
func errOf[T any](_ T, err error) error { return err }

// A hub is killed, or ends in order, and Redis loses its last writes before the next process of the
// hub is there. That one has the notes of the first.
func TestNextProcessPutsBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := queue.Options{Sealer: vault("s"), Notes: t.TempDir()}
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
