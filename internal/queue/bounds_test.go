package queue_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// weigh returns the bytes that a job keeps in Redis while it waits.
func (b *bench) weigh(key string) int64 {
	b.t.Helper()
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
	b.t.Helper()
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
		_, err := b.Enqueue(ctx, submission("c"))
		require.ErrorIs(t, err, queue.ErrFull)
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
		_, err = b.Enqueue(ctx, submission("c", heavy(6000)))
		require.ErrorIs(t, err, queue.ErrFullBytes)
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
				_, err := b.Enqueue(ctx, submission("c", heavy(6000), of("greedy")))
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
	b.t.Helper()
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
			t.Helper()
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
