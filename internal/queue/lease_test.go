package queue_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
)

func TestRenew(t *testing.T) {
	each(t, queue.Options{Lease: time.Hour}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		a, c, d := b.claim(b.enqueue("a"), "g1").Run, b.claim(b.enqueue("c"), "g2").Run, b.claim(b.enqueue("d"), "g3").Run
		must(b.Cancel(ctx, c.Key))
		require.NoError(t, b.Finish(ctx, d, done("{}")))
		b.expire(a)
		result := must(b.Renew(ctx, "hub/1", []job.Run{a, c, d}))
		require.Equal(t, queue.RenewResult{Lost: []job.Run{d}, Cancelled: []job.Run{c}}, result)
		require.Empty(t, must(b.Sweep(ctx, "hub/2", 10)), "a renewal in time counts, however late")
		result = must(b.Renew(ctx, "hub/other", []job.Run{a}))
		require.Equal(t, []job.Run{a}, result.Lost)
	})
}

// Redis does nothing else while a script runs, so a hub with hundreds of runs renews them in parts.
func TestRenewOfManyRuns(t *testing.T) {
	each(t, queue.Options{Lease: time.Hour}, func(t *testing.T, b *bench) {
		var held []job.Run
		for n := range 120 {
			held = append(held, b.claim(b.enqueue(fmt.Sprint(n)), fmt.Sprint("gpu", n)).Run)
		}
		must(b.Cancel(t.Context(), held[70].Key))
		require.NoError(t, b.Finish(t.Context(), held[110], done("{}")))
		sizes := &commandSizes{}
		b.db.Client().AddHook(sizes)
		require.Equal(t, queue.RenewResult{Lost: held[110:111], Cancelled: held[70:71]}, must(b.Renew(t.Context(), "hub/1", held)))
		require.Less(t, sizes.most, 120, "words of one command")
	})
}

// commandSizes notes the most words of a command.
type commandSizes struct{ most int }

// DialHook implements [goredis.Hook].
func (*commandSizes) DialHook(next goredis.DialHook) goredis.DialHook { return next }

// ProcessHook implements [goredis.Hook].
func (s *commandSizes) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, c goredis.Cmder) error {
		s.most = max(s.most, len(c.Args()))
		return next(ctx, c)
	}
}

// ProcessPipelineHook implements [goredis.Hook].
func (*commandSizes) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// Renewing reads no body, not even that of a run that this hub has no copy of yet, and puts nothing
// back: the other leases are waiting for it.
func TestRenewIsQuick(t *testing.T) {
	each(t, queue.Options{Lease: time.Hour}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		b.KeepCopies()
		var held []job.Run
		for n := range 3 {
			orphan := must(b.Adopt(ctx, b.claim(b.enqueue(fmt.Sprint(n)), fmt.Sprint("gpu", n)).Run, "hub/2"))
			held = append(held, orphan.Run)
		}
		must(b.Adopt(ctx, held[2], "hub/3"))
		b.KeepCopies() // none of these
		trips := &pipelines{}
		b.db.Client().AddHook(trips)
		renewed := must(b.Renew(ctx, "hub/2", held))
		require.Equal(t, held[2:], renewed.Lost)
		require.Zero(t, trips.count)
		require.Equal(t, held[2:], must(b.Recover(ctx, held, renewed.Lost)))
		require.Equal(t, 2, trips.count, "it reads all bodies at once")
		must(b.Recover(ctx, held[:2], nil))
		require.Equal(t, 2, trips.count, "and each once")
	})
}

func TestSweep(t *testing.T) {
	each(t, queue.Options{Lease: time.Hour}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		const n = 20
		old := map[string]job.Run{}
		for i := range n {
			run := b.claim(b.enqueue(fmt.Sprint(i)), fmt.Sprint("gpu", i)).Run
			old[run.Key] = run
			if i%2 == 0 {
				require.NoError(t, b.Started(ctx, run))
				require.NoError(t, b.Release(ctx, run))
				must(b.Cancel(ctx, run.Key))
			}
			b.expire(run)
		}
		var mu sync.Mutex
		got := map[string]queue.Orphan{}
		var wg sync.WaitGroup
		for hub := range 8 {
			wg.Go(func() {
				for range 4 {
					orphans, err := b.Sweep(ctx, fmt.Sprint("sweeper/", hub), 3)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					for _, o := range orphans {
						if _, twice := got[o.Key]; twice {
							t.Errorf("%s was handed out twice", o.Key)
						}
						got[o.Key] = o
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		require.Len(t, got, n)
		for key, o := range got {
			was := old[key]
			require.Greater(t, o.Fence, was.Fence)
			require.Equal(t, was.Upstream, o.Upstream)
			require.Equal(t, was.Instance, o.Instance)
			require.NotEqual(t, was.Hub, o.Hub)
			j := b.get(key)
			require.Equal(t, o.Run, j.Run)
			require.Equal(t, j.State == job.Running, o.Released)
			require.Equal(t, o.Released, o.CancelAsked)
			require.Equal(t, j.State, o.State)
			require.Empty(t, must(b.Renew(ctx, o.Hub, []job.Run{o.Run})).Lost)
		}
	})
}

// During an outage of Redis no holder can renew, and when its clock is set forward none has had the
// time to. The first sweep afterwards must not take all runs away from living hubs.
func TestSweepAfterAnOutage(t *testing.T) {
	each(t, queue.Options{Lease: time.Hour}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		outage := redis.NewScript("outage", redis.Write, `write('HSET', key('q', 'counters'), 'swept', int(now() - 45 * 60000)) return {'ok'}`)
		held, dead := b.claim(b.enqueue("held"), "g1").Run, b.claim(b.enqueue("dead"), "g2").Run
		sweep := func() []queue.Orphan {
			return must(b.Sweep(ctx, "hub/2", 10))
		}
		for range 2 {
			b.expire(held)
			b.expire(dead)
			must(b.db.Run(ctx, outage))
			if len(sweep()) == 0 { // the first time: both are spared
				must(b.Renew(ctx, "hub/1", []job.Run{held}))
				continue
			}
			// The second time: only the one that renewed is spared.
			require.Equal(t, "hub/2", b.get(dead.Key).Run.Hub)
			require.Equal(t, "hub/1", b.get(held.Key).Run.Hub)
			return
		}
		require.Fail(t, "a lease that is never renewed is never handed over")
	})
}

// beat records a beat that counts for an hour, and returns the silent hubs.
func (b *bench) beat(hub string, buried ...string) []string {
	b.t.Helper()
	silent, _, err := b.Beat(b.t.Context(), hub, time.Hour, buried...)
	require.NoError(b.t, err)
	return silent
}

// falls makes a hub silent, so that others may take its runs.
func (b *bench) falls(hub string) {
	b.t.Helper()
	_, _, err := b.Beat(b.t.Context(), hub, time.Millisecond)
	require.NoError(b.t, err)
}

// The runs of a hub that stops beating go to another one long before their leases end, and the hub
// can no longer change anything should it be alive after all.
func TestInheritFromASilentHub(t *testing.T) {
	each(t, queue.Options{Lease: time.Hour}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		run := b.claim(b.enqueue("a"), "gpu").Run
		_, err := b.Inherit(ctx, run, "hub/2")
		require.ErrorIs(t, err, queue.ErrStale, "its hub has never beaten: one of an earlier version")
		require.Empty(t, b.beat("hub/1"))
		require.Empty(t, b.beat("hub/2"))
		_, err = b.Inherit(ctx, run, "hub/2")
		require.ErrorIs(t, err, queue.ErrStale, "its hub is alive")

		b.falls("hub/1")
		require.Eventually(t, func() bool { return len(b.beat("hub/2")) == 1 }, time.Minute, time.Millisecond)
		other := run
		other.Hub = "hub/3"
		_, err = b.Inherit(ctx, other, "hub/2")
		require.ErrorIs(t, err, queue.ErrStale, "the run is not of that hub")
		o := must(b.Inherit(ctx, run, "hub/2"))
		require.Greater(t, o.Fence, run.Fence)
		require.Equal(t, "hub/2", o.Hub)
		require.Equal(t, []string{run.Upstream, run.SID, run.Instance}, []string{o.Upstream, o.SID, o.Instance})
		_, err = b.Inherit(ctx, run, "hub/3")
		require.ErrorIs(t, err, queue.ErrStale, "one gets it")

		_, late, err := b.Beat(ctx, "hub/1", time.Hour)
		require.NoError(t, err)
		require.True(t, late, "it learns that others may have its runs")
		require.Equal(t, []job.Run{run}, must(b.Renew(ctx, "hub/1", []job.Run{run})).Lost)
		require.ErrorIs(t, b.Finish(ctx, run, done("{}")), queue.ErrStale)
		require.NoError(t, b.Finish(ctx, o.Run, done("{}")))
		require.Empty(t, b.beat("hub/2"))
	})
}

// A hub that stops says so, and its runs are up for grabs at once. Silent hubs without runs are
// forgotten.
func TestQuit(t *testing.T) {
	each(t, queue.Options{Lease: time.Hour}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		require.NoError(t, b.Quit(ctx, "hub/1"), "before it ever beat")
		require.Empty(t, b.beat("hub/2"))
		run := b.claim(b.enqueue("a"), "gpu").Run
		b.beat("hub/1")
		require.NoError(t, b.Quit(ctx, "hub/1"))
		require.Equal(t, []string{"hub/1"}, b.beat("hub/2"))
		must(b.Inherit(ctx, run, "hub/2"))
		require.Equal(t, []string{"hub/1"}, b.beat("hub/3"))
		require.Empty(t, b.beat("hub/2", "hub/1", "hub/3"), "a hub that lives is not forgotten")
		require.NoError(t, b.Quit(ctx, "hub/3"))
		require.Equal(t, []string{"hub/3"}, b.beat("hub/2"))
		b.lua(`write('ZADD', key('q', 'hubs'), '1', 'hub/3')`, "")
		require.Empty(t, b.beat("hub/2"), "forgotten after an hour")
	})
}

// While Redis is away no hub can beat. The first one back takes nothing from the others.
func TestAllHubsWereSilent(t *testing.T) {
	each(t, queue.Options{Lease: time.Hour}, func(t *testing.T, b *bench) {
		run := b.claim(b.enqueue("a"), "gpu").Run
		b.beat("hub/1")
		b.beat("hub/2")
		b.lua(`write('ZADD', key('q', 'hubs'), int(now() - 5000), 'hub/1', int(now() - 4000), 'hub/2')`, "")
		silent, late, err := b.Beat(t.Context(), "hub/2", time.Hour)
		require.NoError(t, err)
		require.True(t, late)
		require.Empty(t, silent)
		_, err = b.Inherit(t.Context(), run, "hub/2")
		require.ErrorIs(t, err, queue.ErrStale)
	})
}
