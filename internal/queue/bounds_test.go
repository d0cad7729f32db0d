package queue_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// weigh returns the bytes that a job keeps in Redis while it waits.
func (b *bench) weigh(key string) int64 {
	var n int64
	for _, kind := range []string{"body", "secret"} {
		size := must(b.db.Client().StrLen(b.t.Context(), b.db.Key("q", kind, key)).Result())
		n += size
	}
	return n
}

// share is what is waiting for a tenant, or for all tenants.
type share struct {
	jobs  int
	bytes int64
}

func (b *bench) share(tenant string) share {
	jobs, size, err := b.Waiting(b.t.Context(), tenant)
	require.NoError(b.t, err)
	return share{jobs, size}
}

// compareShares compares the queue's counts with the model.
func (w *walk) compareShares(waiting []*modelJob) {
	want := map[string]share{"": {}, "t0": {}, "t1": {}}
	for _, j := range waiting {
		for _, tenant := range []string{"", j.Tenant} {
			s := want[tenant]
			want[tenant] = share{s.jobs + 1, s.bytes + j.weight}
		}
	}
	for tenant, s := range want {
		require.Equal(w.t, s, w.share(tenant), "of %q", tenant)
	}
	if len(waiting) == 0 {
		n := must(w.db.Client().Exists(w.ctx, w.db.Key("q", "waiting_jobs"), w.db.Key("q", "waiting_bytes")).Result())
		require.Zero(w.t, n, "a share of nothing takes no room")
	}
}

// heavy gives a job a body that does not compress.
func heavy(size int) func(*queue.Submission) {
	return func(s *queue.Submission) {
		s.Body.Prompt = make([]byte, size)
		_, _ = rand.Read(s.Body.Prompt)
	}
}

func of(tenant string) func(*queue.Submission) {
	return func(s *queue.Submission) { s.Tenant = tenant }
}

func TestFull(t *testing.T) {
	each(t, queue.Options{MaxQueue: 2}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		a := b.enqueue("a")
		b.enqueue("b")
		require.ErrorIs(t, errOf(b.Enqueue(ctx, submission("c"))), queue.ErrFull)
		same, err := b.Enqueue(ctx, submission("a"))
		require.NoError(t, err, "what was accepted is found also when it is full")
		require.True(t, same.Existing)
		b.claim(a, "gpu")
		require.Equal(t, "2", b.enqueue("c").Number, "a refused prompt consumed nothing")
		live, waiting, _, err := b.CountAll(ctx)
		require.NoError(t, err)
		require.Equal(t, 3, live)
		require.Equal(t, 2, waiting)
	})
}

func TestFullOfBytes(t *testing.T) {
	each(t, queue.Options{MaxQueueBytes: 10_000}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		a := b.enqueue("a", heavy(50_000))
		require.Greater(t, b.share("").bytes, int64(50_000), "an empty queue takes any job")
		_, err := b.Enqueue(ctx, submission("b"))
		require.ErrorIs(t, err, queue.ErrFullBytes)
		require.ErrorIs(t, err, queue.ErrFull)
		a = b.claim(a, "gpu")
		require.Equal(t, share{}, b.share(""), "what runs is not counted")
		b.enqueue("b", heavy(6000))
		require.ErrorIs(t, errOf(b.Enqueue(ctx, submission("c", heavy(6000)))), queue.ErrFullBytes)
		require.Equal(t, "2", b.enqueue("c", heavy(2000)).Number, "a refused prompt consumed nothing")
		_, err = b.Requeue(ctx, a.Run, queue.RequeueOptions{Reason: "lost"})
		require.NoError(t, err, "what was accepted comes back also when it is full")
		require.Equal(t, 3, b.share("").jobs)

		folded := func(size int) func(*queue.Submission) {
			return func(s *queue.Submission) { s.Body.Prompt = bytes.Repeat([]byte("a"), size) }
		}
		must(b.Cancel(ctx, a.Key))
		b.enqueue("d", folded(16_000))
		_, err = b.Enqueue(ctx, submission("e", folded(50_000)))
		require.ErrorIs(t, err, queue.ErrFullBytes, "what shrinks to nothing counts for a part of its size")
		_, err = b.Enqueue(ctx, submission("f", func(s *queue.Submission) { s.Label = strings.Repeat("a", 9000) }))
		require.ErrorIs(t, err, queue.ErrFullBytes, "a label counts, too")
	})
}

// A tenant that reaches its own bound is told so. Others are not affected.
func TestFullForATenant(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]queue.Options{
		"jobs":  {TenantMaxQueue: 2},
		"bytes": {TenantMaxQueueBytes: 13_000},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, o, func(t *testing.T, b *bench) {
				ctx := t.Context()
				first := b.enqueue("a", heavy(6000), of("greedy"))
				b.enqueue("b", heavy(6000), of("greedy"))
				err := errOf(b.Enqueue(ctx, submission("c", heavy(6000), of("greedy"))))
				require.ErrorIs(t, err, queue.ErrTenantFull)
				require.Equal(t, name == "bytes", errorIs(err, queue.ErrTenantFullBytes))
				require.NotErrorIs(t, err, queue.ErrFull)
				for i := range 2 {
					b.enqueue(fmt.Sprint(i), heavy(6000), of("modest"))
				}
				must(b.Cancel(ctx, first.Key))
				b.enqueue("c", heavy(6000), of("greedy"))
				require.Equal(t, 2, b.share("greedy").jobs)
				require.Equal(t, 2, b.share("modest").jobs)
			})
		})
	}
}

// lua runs a few lines of Lua on a job's record.
func (b *bench) lua(body, key string) {
	script := redis.NewScript("test", redis.Write, `local k = ARGV[1]
local rank, class = redis.call('HGET', key('q', 'job', k), 'rank'), redis.call('HGET', key('q', 'job', k), 'class')
`+body+`
return {'ok'}`)
	must(b.db.Run(b.t.Context(), script, key))
}

// These scripts do to a job what a hub of a version that does not count would do.
const (
	oldEnqueue = `
for _, tenant in ipairs({'', 'tenant'}) do
  write('HINCRBY', key('q', 'waiting_jobs'), tenant, '-1')
  write('HINCRBY', key('q', 'waiting_bytes'), tenant, int(0 - tonumber(redis.call('HGET', key('q', 'job', k), 'counted'))))
end
write('HDEL', key('q', 'job', k), 'counted')`
	oldClaim = `
write('ZREM', key('q', 'waiting'), rank)
write('ZREM', key('q', 'wait', class), rank)
write('HSET', key('q', 'job', k), 'state', 'leased', 'fence', '1', 'attempts', '1', 'instance', 'old', 'hub', 'old/1', 'lease', '1')
write('ZADD', key('q', 'leases'), '1', k)`
)

// A hub of the previous version counts nothing. If it works on the same jobs beside this hub,
// nothing is counted twice.
func TestCountedBesideAnOldHub(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		b.enqueue("stays")
		one := b.share("tenant")

		j := b.enqueue("old enqueue, new claim")
		b.lua(oldEnqueue, j.Key)
		b.claim(j, "gpu1")
		require.Equal(t, one, b.share("tenant"))

		j = b.enqueue("old claim, new requeue")
		b.lua(oldClaim, j.Key)
		must(b.Requeue(ctx, b.get(j.Key).Run, queue.RequeueOptions{Reason: "lost"}))
		require.Equal(t, 2, b.share("tenant").jobs)
		b.claim(j, "gpu2")
		require.Equal(t, one, b.share("tenant"))

		j = b.enqueue("old claim, new finish")
		b.lua(oldClaim, j.Key)
		require.NoError(t, b.Finish(ctx, b.get(j.Key).Run, done("{}")))
		require.Equal(t, one, b.share("tenant"))
		require.Equal(t, one, b.share(""))
	})
}

// A sweep counts again after an upgrade, and where an old hub took jobs away unnoticed. From then
// on everything works as if it had always been counted.
func TestRecount(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		recounted := func() {
			b.lua(`write('HDEL', key('q', 'counters'), 'recounted')`, "")
			must(b.Sweep(ctx, "hub/1", 10))
		}
		var jobs []job.Job
		var want share
		for i := range 20 {
			j := b.enqueue(fmt.Sprint(i), heavy(100*i))
			jobs = append(jobs, j)
			want = share{want.jobs + 1, want.bytes + b.weigh(j.Key)}
			b.lua(oldEnqueue, j.Key)
		}
		running := b.claim(b.enqueue("runs"), "gpu")
		require.Equal(t, share{}, b.share(""))
		recounted()
		require.Equal(t, want, b.share(""))
		require.Equal(t, want, b.share("tenant"))

		b.lua(oldClaim, jobs[3].Key)
		b.lua(`write('HSET', key('q', 'job', k), 'counted', '77')`, running.Key)
		b.lua(`write('HSET', key('q', 'waiting_bytes'), 'left over', '99')`, "")
		recounted()
		want = share{want.jobs - 1, want.bytes - b.weigh(jobs[3].Key)}
		require.Equal(t, want, b.share(""))
		require.Equal(t, share{}, b.share("left over"))

		must(b.Requeue(ctx, running.Run, queue.RequeueOptions{}))
		for _, j := range must(b.Live(ctx, "")) {
			must(b.Cancel(ctx, j.Key))
		}
		require.Equal(t, share{}, b.share(""))
		require.Equal(t, share{}, b.share("tenant"))
	})
}

// pipelines counts the round trips of a client, and how much the largest one has read.
type pipelines struct{ count, most int }

func (p *pipelines) DialHook(next goredis.DialHook) goredis.DialHook          { return next }
func (p *pipelines) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

func (p *pipelines) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		err := next(ctx, cmds)
		size := 0
		for _, cmd := range cmds {
			if s, ok := cmd.(*goredis.StringCmd); ok {
				size += len(s.Val())
			}
		}
		p.count, p.most = p.count+1, max(p.most, size)
		return err
	}
}

// Many small bodies are read in few round trips, and large ones few at a time.
func TestBodiesAreReadInParts(t *testing.T) {
	type row struct{ count, noise, trips int }
	eachOf(t, queue.Options{}, map[string]row{
		"small": {count: 255, trips: 5}, // 1 for the sizes, 4 for the bodies
		"large": {count: 12, noise: 300 << 10, trips: 20},
	}, func(t *testing.T, b *bench, c row) {
		var keys, read []string
		for n := range c.count {
			keys = append(keys, b.enqueue(fmt.Sprint(n), heavy(c.noise)).Key)
		}
		trips := &pipelines{}
		b.db.Client().AddHook(trips)
		require.NoError(t, b.EachBody(t.Context(), slices.Insert(slices.Clone(keys), 5, "gone"), func(body queue.StoredBody) error {
			read = append(read, body.Key)
			return nil
		}))
		require.Equal(t, keys, read)
		require.LessOrEqual(t, trips.count, c.trips)
		require.Positive(t, trips.most)
		require.LessOrEqual(t, trips.most, 1<<20)
	})
}

// The hub that accepted a prompt and has its run does not ask Redis for the body. Every other hub
// does, and so does this one once the run is over.
func TestBodyOfOnesOwnRun(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b, other := on(t, redistest.Open(t, server.URL()), queue.Options{}), on(t, redistest.Open(t, server.URL()), queue.Options{})
	j := b.enqueue("id")
	want := must(other.Body(t.Context(), j.Key))
	claimed := b.claim(j, "gpu1")
	require.NoError(t, b.db.Client().Del(t.Context(), b.db.Key("q", "body", j.Key)).Err())
	require.Equal(t, want, must(b.Body(t.Context(), j.Key)))
	require.ErrorIs(t, errOf(other.Body(t.Context(), j.Key)), queue.ErrNotFound)
	must(b.Requeue(t.Context(), claimed.Run, queue.RequeueOptions{Reason: "lost"}))
	require.ErrorIs(t, errOf(b.Body(t.Context(), j.Key)), queue.ErrNotFound, "it is nobody's run now")
}

// A lesson belongs to one life of one instance, and hubs share it.
func TestLessons(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		known := queue.Lesson{Instance: "gpu1", Boot: "a", Text: "bounds of x"}
		require.NoError(t, b.Learn(ctx, nil))
		require.NoError(t, b.Learn(ctx, []queue.Lesson{known, {Instance: "gpu2", Boot: "a", Text: "bounds of x"}}))
		require.NoError(t, b.Learn(ctx, []queue.Lesson{known}), "again")
		other := on(t, b.db, queue.Options{})
		for _, c := range []struct {
			lesson queue.Lesson
			want   bool
		}{
			{known, true},
			{queue.Lesson{Instance: "gpu1", Boot: "b", Text: "bounds of x"}, false},
			{queue.Lesson{Instance: "gpu3", Boot: "a", Text: "bounds of x"}, false},
			{queue.Lesson{Instance: "gpu1", Boot: "a", Text: "bounds of y"}, false},
		} {
			require.Equal(t, c.want, must(other.Learnt(ctx, []queue.Lesson{known, c.lesson})), c.lesson)
		}
	})
}

// Hubs share what they measure: the last runs of each pair, and the pairs that were run last.
func TestDurations(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		require.NoError(t, b.KeepMeasured(ctx, nil))
		var runs []queue.Measured
		for n := range 15 {
			runs = append(runs, queue.Measured{Pair: "a:k:gpu", Run: fmt.Sprintf("1w%d", n)})
		}
		require.NoError(t, b.KeepMeasured(ctx, runs))
		other := on(t, b.db, queue.Options{})
		got, now, err := other.Durations(ctx, 0)
		require.NoError(t, err)
		require.Positive(t, now)
		require.Equal(t, map[string]string{"a:k:gpu": "1w3 1w4 1w5 1w6 1w7 1w8 1w9 1w10 1w11 1w12 1w13 1w14"}, got)

		runs = nil
		for n := range 3000 {
			runs = append(runs, queue.Measured{Pair: fmt.Sprintf("s%d:k:gpu", n), Run: "1w1"})
		}
		require.NoError(t, b.KeepMeasured(ctx, runs))
		require.NoError(t, b.KeepMeasured(ctx, []queue.Measured{{Pair: "new:k:gpu", Run: "1c2"}}))
		got, _, err = other.Durations(ctx, now)
		require.NoError(t, err)
		require.Len(t, got, 3000, "bounded")
		require.Equal(t, "1c2", strings.TrimSpace(got["new:k:gpu"]))
		_, kept := got["a:k:gpu"]
		require.False(t, kept, "the oldest goes first")
		got, _, err = other.Durations(ctx, now+1e12)
		require.NoError(t, err)
		require.Empty(t, got)
	})
}
