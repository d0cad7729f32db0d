package queue_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
)

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

// During an outage of Redis no holder can renew, and when its clock is set forward none has had the
// time to. The first sweep afterwards must not take all runs away from living hubs.
func TestSweepAfterAnOutage(t *testing.T) {
	each(t, queue.Options{Lease: time.Hour}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		outage := redis.NewScript("outage", redis.Write, `write('HSET', key('q', 'counters'), 'swept', int(now() - 45 * 60000)) return {'ok'}`)
		held, dead := b.claim(b.enqueue("held"), "g1").Run, b.claim(b.enqueue("dead"), "g2").Run
		sweep := func() []queue.Orphan { return must(b.Sweep(ctx, "hub/2", 10)) }
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
	silent, _, err := b.Beat(b.t.Context(), hub, time.Hour, buried...)
	require.NoError(b.t, err)
	return silent
}

// falls makes a hub silent, so that others may take its runs.
func (b *bench) falls(hub string) {
	_, _, err := b.Beat(b.t.Context(), hub, time.Millisecond)
	require.NoError(b.t, err)
}

// The runs of a hub that stops beating go to another one long before their leases end, and the hub
// can no longer change anything should it be alive after all.
func TestInheritFromASilentHub(t *testing.T) {
	each(t, queue.Options{Lease: time.Hour}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		run := b.claim(b.enqueue("a"), "gpu").Run
		require.ErrorIs(t, errOf(b.Inherit(ctx, run, "hub/2")), queue.ErrStale, "its hub has never beaten: one of an earlier version")
		require.Empty(t, b.beat("hub/1"))
		require.Empty(t, b.beat("hub/2"))
		require.ErrorIs(t, errOf(b.Inherit(ctx, run, "hub/2")), queue.ErrStale, "its hub is alive")

		b.falls("hub/1")
		require.Eventually(t, func() bool { return len(b.beat("hub/2")) == 1 }, time.Minute, time.Millisecond)
		other := run
		other.Hub = "hub/3"
		require.ErrorIs(t, errOf(b.Inherit(ctx, other, "hub/2")), queue.ErrStale, "the run is not of that hub")
		o := must(b.Inherit(ctx, run, "hub/2"))
		require.Greater(t, o.Fence, run.Fence)
		require.Equal(t, "hub/2", o.Hub)
		require.Equal(t, []string{run.Upstream, run.SID, run.Instance}, []string{o.Upstream, o.SID, o.Instance})
		require.ErrorIs(t, errOf(b.Inherit(ctx, run, "hub/3")), queue.ErrStale, "one gets it")

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
		require.ErrorIs(t, errOf(b.Inherit(t.Context(), run, "hub/2")), queue.ErrStale)
	})
}

func TestRequeue(t *testing.T) {
	each(t, queue.Options{MaxAttempts: 2}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		a := b.enqueue("a")
		b.enqueue("b")
		waiting := func() []string {
			heads := must(b.Peek(ctx, []string{"class"}, 10))
			return ids(heads)
		}
		run := b.claim(a, "gpu").Run
		require.Equal(t, []string{"b"}, waiting())
		back := must(b.Requeue(ctx, run, queue.RequeueOptions{Reason: "taken back", Excused: true}))
		require.Equal(t, []string{"a", "b"}, waiting(), "the old place")
		require.Equal(t, a.Rank, back.Rank)
		require.Zero(t, back.Attempts)
		require.Equal(t, job.Queued, back.State)
		require.Equal(t, "taken back", back.Reason)

		run = b.claim(a, "gpu").Run
		back = must(b.Requeue(ctx, run, queue.RequeueOptions{Reason: "died: 1\nline two"}))
		require.Equal(t, 1, back.Attempts)
		run = b.claim(a, "gpu").Run
		last, err := b.Requeue(ctx, run, queue.RequeueOptions{Reason: "died again"})
		require.ErrorIs(t, err, queue.ErrExhausted)
		require.Equal(t, []string{"taken back", "died: 1\nline two", "died again"}, last.Lost)
		require.Len(t, last.LostAt, 3)
		require.True(t, slices.IsSorted(last.LostAt))
		require.GreaterOrEqual(t, last.LostAt[0], last.CreatedAt)
		require.Equal(t, job.Leased, last.State, "the caller still holds it")
		again, err := b.Requeue(ctx, run, queue.RequeueOptions{Reason: "died again"})
		require.ErrorIs(t, err, queue.ErrExhausted)
		require.Equal(t, last, again, "said again it changes nothing")

		// The holder dies. The next one learns that only the end is missing.
		b.expire(run)
		orphans := must(b.Sweep(ctx, "hub/2", 10))
		require.Len(t, orphans, 1)
		require.True(t, orphans[0].Exhausted)
		require.NoError(t, b.Finish(ctx, orphans[0].Run, queue.Outcome{State: job.Failed, Entry: []byte("{}"), Reason: "three times"}))
		require.Equal(t, "three times", b.get(a.Key).Reason)
	})
}

// Runs that do not count are bounded too, more tightly if they cost GPU time. A job that no attempt
// can help gets none.
func TestExcusesAreBounded(t *testing.T) {
	type row struct {
		before  map[string]any // what the record already says
		started bool
		o       queue.RequeueOptions
		spent   bool
	}
	eachOf(t, queue.Options{}, map[string]row{
		"excused":                       {o: queue.RequeueOptions{Excused: true}},
		"excused too often":             {before: map[string]any{"excuses": queue.MaxExcuses - 1}, o: queue.RequeueOptions{Excused: true}, spent: true},
		"excused, having run":           {before: map[string]any{"reruns": queue.MaxReruns - 2}, started: true, o: queue.RequeueOptions{Excused: true}},
		"excused, having run too often": {before: map[string]any{"reruns": queue.MaxReruns - 1}, started: true, o: queue.RequeueOptions{Excused: true}, spent: true},
		"excused, not having run":       {before: map[string]any{"reruns": queue.MaxReruns - 1}, o: queue.RequeueOptions{Excused: true}},
		"lost, often excused before":    {before: map[string]any{"excuses": queue.MaxExcuses - 1}, o: queue.RequeueOptions{}},
		"hopeless":                      {o: queue.RequeueOptions{Hopeless: true}, spent: true},
	}, func(t *testing.T, b *bench, tt row) {
		j := b.enqueue("a")
		if tt.before != nil {
			require.NoError(t, b.db.Client().HSet(t.Context(), b.db.Key("q", "job", j.Key), tt.before).Err())
		}
		run := b.claim(j, "gpu").Run
		if tt.started {
			require.NoError(t, b.Started(t.Context(), run))
		}
		o := tt.o
		o.Reason = "why"
		back, err := b.Requeue(t.Context(), run, o)
		require.Equal(t, []string{"why"}, back.Lost)
		if !tt.spent {
			require.NoError(t, err)
			require.Equal(t, job.Queued, back.State)
			return
		}
		require.ErrorIs(t, err, queue.ErrExhausted)
		b.expire(run) // its holder dies before ending it
		orphans := must(b.Sweep(t.Context(), "hub/2", 10))
		require.Len(t, orphans, 1)
		require.True(t, orphans[0].Exhausted)
	})
}

func TestLastReasonsAreKept(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		j := b.enqueue("a")
		requeue := func(reason string) []string {
			back := must(b.Requeue(t.Context(), b.claim(j, "gpu").Run, queue.RequeueOptions{Reason: reason, Excused: true}))
			return back.Lost
		}
		for n := range 12 {
			requeue(fmt.Sprintf("%d: %s\n", n, strings.Repeat("ä:", n)))
		}
		last := requeue("")
		require.Len(t, last, 8)
		require.Equal(t, "5: "+strings.Repeat("ä:", 5)+"\n", last[0])
		require.Equal(t, []string{"11: " + strings.Repeat("ä:", 11) + "\n", ""}, last[6:])
	})
}

// A job that has to wait is not given out until its time has come. It keeps its place.
func TestPause(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		a := b.enqueue("a")
		b.enqueue("b")
		next := func() time.Duration { return must(b.Window(t.Context(), queue.Wanted{}, 0, 2)).Next }
		must(b.Requeue(t.Context(), b.claim(a, "gpu").Run, queue.RequeueOptions{Excused: true, Pause: time.Hour}))
		require.Equal(t, []string{"b"}, b.order())
		require.Greater(t, next(), 50*time.Minute)
		require.ErrorIs(t, errOf(b.try(a)), queue.ErrNotQueued)
		require.NoError(t, b.db.Client().HSet(t.Context(), b.db.Key("q", "job", a.Key), "not_before", must(b.db.Now(t.Context())).UnixMilli()).Err())
		require.Equal(t, []string{"a", "b"}, b.order())
		require.Zero(t, next())
		require.Zero(t, must(b.Requeue(t.Context(), b.claim(a, "gpu").Run, queue.RequeueOptions{})).NotBefore)
	})
}

// A record that cannot be read does not hide the jobs behind it.
func TestWindowBehindADamagedRecord(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		a := b.enqueue("a")
		b.enqueue("b")
		require.NoError(t, b.db.Client().HSet(t.Context(), b.db.Key("q", "job", a.Key), "attempts", "many").Err())
		w := must(b.Window(t.Context(), queue.Wanted{}, 0, 1))
		require.True(t, w.More)
		require.Zero(t, w.Next)
		require.Empty(t, w.Jobs)
		w = must(b.Window(t.Context(), queue.Wanted{}, 1, 1))
		require.Equal(t, []string{"b"}, ids(w.Jobs))
	})
}
