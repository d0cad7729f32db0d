package queue_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/leaktest"
	"github.com/comfyhub/comfyhub/internal/programs/programstest"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// Half of the tests wait for a redis-server to start.
func TestMain(m *testing.M) {
	programstest.SideBySide()
	leaktest.Main(m)
}

// bench is a queue with shortcuts for its use.
type bench struct {
	*queue.Queue
	t  testing.TB
	db *redis.DB
}

func on(t testing.TB, db *redis.DB, o queue.Options) *bench {
	t.Helper()
	q, err := queue.New(db, o)
	require.NoError(t, err)
	return &bench{Queue: q, t: t, db: db}
}

// each runs a test on both kinds of Redis.
func each(t *testing.T, o queue.Options, test func(t *testing.T, b *bench)) {
	t.Helper()
	redistest.Each(t, func(t *testing.T, db *redis.DB) { test(t, on(t, db, o)) })
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
	b.t.Helper()
	accepted, err := b.Enqueue(b.t.Context(), submission(id, change...))
	require.NoError(b.t, err)
	require.False(b.t, accepted.Existing)
	return accepted.Job
}

func (b *bench) claim(j job.Job, instance string) job.Job {
	b.t.Helper()
	claimed, err := b.Claim(b.t.Context(), queue.ClaimRequest{
		Key: j.Key, Instance: instance, Hub: "hub/1", Upstream: uuid.NewString(), SID: "sid",
	})
	require.NoError(b.t, err)
	return claimed
}

func (b *bench) get(key string) job.Job {
	b.t.Helper()
	j, err := b.Get(b.t.Context(), key)
	require.NoError(b.t, err)
	return j
}

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
	t.Parallel()
	each(t, queue.Options{Sealer: vault(t, "s")}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		s := submission("a", func(s *queue.Submission) {
			s.Priority = 5
			s.Body.Secrets = []byte(`{"api_key_comfy_org":"k"}`)
			s.Body.Targets = []byte(`["9"]`)
			s.Body.Inputs = []byte("pins")
		})
		accepted, err := b.Enqueue(ctx, s)
		require.NoError(t, err)
		j := accepted.Job
		require.Equal(t, job.Queued, j.State)
		require.Equal(t, "0", j.Number)
		require.Equal(t, s.Key, j.Key)
		require.Positive(t, j.CreatedAt)
		require.Equal(t, j, b.get(s.Key))

		body, err := b.Body(ctx, j.Key)
		require.NoError(t, err)
		require.Equal(t, s.Body, body)
		classes, err := b.Classes(ctx)
		require.NoError(t, err)
		require.Equal(t, map[string][]byte{"class": []byte("requires")}, classes)
		heads, err := b.Peek(ctx, []string{"class", "other"}, 3)
		require.NoError(t, err)
		require.Equal(t, []job.Job{j}, heads)

		claimed := b.claim(j, "gpu1")
		require.Equal(t, job.Leased, claimed.State)
		require.Equal(t, 1, claimed.Attempts)
		require.Equal(t, j.Rank, claimed.Rank)
		require.Equal(t, claimed.Fence, claimed.Run.Fence)
		require.Equal(t, "gpu1", claimed.Run.Instance)
		require.Greater(t, claimed.Run.LeaseUntil, j.CreatedAt)
		classes, err = b.Classes(ctx)
		require.NoError(t, err)
		require.Empty(t, classes)

		run := claimed.Run
		require.NoError(t, b.Started(ctx, run))
		require.NoError(t, b.Started(ctx, run), "the start may be told twice")
		require.NoError(t, b.Progress(ctx, run, 0.25))
		running := b.get(j.Key)
		require.Equal(t, job.Running, running.State)
		require.InDelta(t, 0.25, running.Progress, 1e-9)
		require.Positive(t, running.StartedAt)
		live, err := b.Live(ctx, "")
		require.NoError(t, err)
		require.Equal(t, []job.Job{running}, live)
		n, err := b.Count(ctx, "caller")
		require.NoError(t, err)
		require.Equal(t, 1, n)

		require.NoError(t, b.Release(ctx, run))
		require.NoError(t, b.Finish(ctx, run, done(`{"x":1}`)))
		require.NoError(t, b.Finish(ctx, run, done(`{"x":2}`)), "the same end twice")
		ended := b.get(j.Key)
		require.Equal(t, job.Done, ended.State)
		require.Positive(t, ended.FinishedAt)
		_, err = b.Body(ctx, j.Key)
		require.ErrorIs(t, err, queue.ErrNotFound)
		entry, err := b.HistoryEntry(ctx, "tenant", "a")
		require.NoError(t, err)
		text, err := entry.JSON()
		require.NoError(t, err)
		require.Equal(t, `{"x":1}`, string(text), "the first end counts")
		live, err = b.Live(ctx, "")
		require.NoError(t, err)
		require.Empty(t, live)
		n, err = b.Count(ctx, "caller")
		require.NoError(t, err)
		require.Zero(t, n)
		waiting, err := b.Undelivered(ctx, "tenant", "client")
		require.NoError(t, err)
		require.Equal(t, []job.Job{ended}, waiting)
		require.NoError(t, b.DeliveredEnds(ctx, queue.Confirmed{Tenant: j.Tenant, ID: j.ID}))
		waiting, err = b.Undelivered(ctx, "tenant", "client")
		require.NoError(t, err)
		require.Empty(t, waiting)
		records, err := b.Ended(ctx, "tenant", queue.Page{})
		require.NoError(t, err)
		require.Equal(t, []queue.Record{{Job: ended, Summary: []byte("summary"), Delivered: true}}, records)
	})
}
