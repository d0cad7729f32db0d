package queue_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// from gives a submission another tenant and caller.
func from(tenant, caller string) func(*queue.Submission) {
	return func(s *queue.Submission) { s.Tenant, s.Caller = tenant, caller }
}

// next gives out the job that is due and returns it. No instance can run jobs of the class "rare".
func (b *bench) next(cost time.Duration) job.Job {
	w := must(b.Window(b.t.Context(), queue.Wanted{But: []string{"rare"}}, 0, 1))
	require.Len(b.t, w.Jobs, 1)
	j := must(b.Claim(b.t.Context(), queue.ClaimRequest{
		Key: w.Jobs[0].Key, Tenant: w.Jobs[0].Tenant, Instance: uuid.NewString(), Hub: "hub/1", Upstream: uuid.NewString(), Cost: cost,
	}))
	return j
}

// A tenant gets no more than its share, whether it has posted little so far or posts much at once.
func TestTenantsTakeTurns(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		for n := range 20 {
			b.enqueue(fmt.Sprint("a", n), from("a", "a"))
		}
		for range 10 {
			require.Equal(t, "a", b.next(time.Minute).Tenant, "nobody else waits")
		}
		for n := range 10 {
			b.enqueue(fmt.Sprint("b", n), from("b", "b"))
		}
		took := map[string]int{}
		for range 10 {
			took[b.next(time.Minute).Tenant]++
		}
		require.Equal(t, map[string]int{"a": 5, "b": 5}, took, "b has saved nothing up, and pays for nothing")
	})
}

// Over time, tenants get instances by their weights, in time and not in jobs.
func TestTenantsShareByWeight(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		weights := map[string]float64{"a": 1, "b": 3, "c": 0.5}
		b.SetLimits(queue.Limits{Weight: func(tenant string) float64 { return weights[tenant] }})
		random := rand.New(rand.NewPCG(1, 2))
		count := 0
		for tenant := range weights {
			for range 60 {
				b.enqueue(fmt.Sprint(tenant, count), from(tenant, tenant))
				count++
			}
		}
		took, all := map[string]float64{}, 0.0
		for range 70 {
			cost := time.Duration(1+random.IntN(20)) * time.Second
			took[b.next(cost).Tenant] += cost.Seconds()
			all += cost.Seconds()
		}
		for tenant, weight := range weights {
			require.InDelta(t, weight/4.5, took[tenant]/all, 0.07, tenant)
		}
	})
}

// One client's prompt does not wait for another's hundred, with or without a login.
func TestCallersTakeTurns(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		for n := range 100 {
			b.enqueue(fmt.Sprint("batch", n), from("team", "one"))
		}
		require.Equal(t, "batch0", b.next(0).ID)
		accepted := must(b.Enqueue(t.Context(), submission("single", from("team", "two"))))
		require.Zero(t, accepted.Position)
		require.Equal(t, "100", accepted.Job.Number, "ComfyUI's number shows the order of arrival")
		require.Equal(t, "single", b.next(0).ID)
		require.Equal(t, "batch1", b.next(0).ID)

		// A caller that comes back after each prompt gets every second turn and no more.
		var order []string
		for n := range 6 {
			b.enqueue(fmt.Sprint("again", n), from("team", "two"))
			order = append(order, b.next(0).Caller, b.next(0).Caller)
		}
		require.Equal(t, 6, count(order, "two"))
		require.Equal(t, 6, count(order, "one"))
	})
}

// A client that makes up a name for each prompt does not stop the others, and one that posts and
// cancels gains nothing.
func TestNamesAreNoTurns(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		for n := range 20 {
			b.enqueue(fmt.Sprint("honest", n), from("team", "honest"))
		}
		b.next(0)
		var order []string
		for n := range 30 {
			b.enqueue(fmt.Sprint("name", n), from("team", fmt.Sprint("name", n)))
			order = append(order, b.next(0).Caller)
		}
		require.GreaterOrEqual(t, count(order, "honest"), 4, "a share like each of the names that wait")

		order = nil
		for n := range 20 {
			cancelled := b.enqueue(fmt.Sprint("cancelled", n), from("team", "one"))
			must(b.Cancel(ctx, cancelled.Key))
			b.enqueue(fmt.Sprint("kept", n), from("team", "one"))
			order = append(order, b.next(0).Caller)
		}
		require.LessOrEqual(t, count(order, "one"), 10)
		names := must(b.db.Client().ZCard(ctx, b.db.Key("q", "callers", "team")).Result())
		require.LessOrEqual(t, names, int64(25), "those that wait and few others")
	})
}

// Names that were only used for cancelled prompts take no space.
func TestCancelledCallersAreForgotten(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		b.enqueue("runs", from("team", "one"))
		b.next(0)
		for n := range 50 {
			must(b.Cancel(ctx, b.enqueue(fmt.Sprint(n), from("team", fmt.Sprint("name", n))).Key))
		}
		require.LessOrEqual(t, must(b.db.Client().ZCard(ctx, b.db.Key("q", "callers", "team")).Result()), int64(1))
	})
}

func count(list []string, what string) (n int) {
	for _, one := range list {
		if one == what {
			n++
		}
	}
	return n
}

// With `order fifo` jobs run in the order they came, whoever posted them.
func TestFIFO(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		b.SetLimits(queue.Limits{FIFO: true})
		want := []string{}
		for n := range 12 {
			tenant := []string{"a", "a", "a", "b"}[n%4]
			require.Equal(t, n, must(b.Enqueue(t.Context(), submission(fmt.Sprint(n), from(tenant, fmt.Sprint(tenant, n%3))))).Position)
			want = append(want, fmt.Sprint(n))
		}
		var order []string
		for range want {
			order = append(order, b.next(0).ID)
		}
		require.Equal(t, want, order)
	})
}

// A tenant pays for the time that its runs took, and nothing for lost ones.
func TestChargesAreSettled(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		tag := func() int {
			score := must(b.db.Client().ZScore(ctx, b.db.Key("q", "tags"), "tenant").Result())
			return int(score)
		}
		for n := range 4 {
			b.enqueue(fmt.Sprint(n))
		}
		lost := b.next(time.Hour)
		require.EqualValues(t, time.Hour.Milliseconds(), tag())
		must(b.Requeue(ctx, lost.Run, queue.RequeueOptions{Reason: "lost"}))
		require.Zero(t, tag())
		ended := b.next(time.Hour)
		require.NoError(t, b.Release(ctx, ended.Run))
		after := tag()
		require.Less(t, int64(after), time.Minute.Milliseconds(), "it took a moment")
		require.NoError(t, b.Finish(ctx, ended.Run, done(`{"x":1}`)))
		require.Equal(t, after, tag(), "settled once")
		b.next(0)
		require.InDelta(t, after, tag(), 10_000, "the default is 10 s")
		require.Greater(t, tag(), after)
	})
}

// A tenant that waited for instances that nobody else could use does not get to take all others for
// as long.
func TestCreditIsBounded(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		for n := range 40 {
			b.enqueue(fmt.Sprint("a", n), from("a", "a"))
			b.enqueue(fmt.Sprint("b", n), from("b", "b"), func(s *queue.Submission) { s.Class = "rare" })
		}
		for range 20 {
			require.Equal(t, "a", b.next(time.Minute).Tenant)
		}
		for n := range 20 {
			b.enqueue(fmt.Sprint("c", n), from("b", "b"))
		}
		took := map[string]int{}
		for range 12 {
			took[b.next(time.Minute).Tenant]++
		}
		require.LessOrEqual(t, took["b"], 8)
		require.Greater(t, took["b"], 5)
	})
}

// What a hub of a version without the index adds or removes is repaired.
func TestIndexIsRepaired(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		window := func() []string {
			w := must(b.Window(ctx, queue.Wanted{}, 0, 10))
			return ids(w.Jobs)
		}
		keep, gone := b.enqueue("keep"), b.enqueue("gone")
		b.enqueue("added")
		c := b.db.Client()
		added := must(b.Find(ctx, "tenant", "added"))
		// One that only the older hub knows about, and one that it has given out.
		require.NoError(t, c.ZRem(ctx, b.db.Key("q", "waits", "tenant"), added.Rank).Err())
		require.NoError(t, c.ZRem(ctx, b.db.Key("q", "wait", "class", "tenant"), added.Rank).Err())
		require.NoError(t, c.HIncrBy(ctx, b.db.Key("q", "counters"), "indexed", -1).Err())
		for _, key := range []string{b.db.Key("q", "waiting"), b.db.Key("q", "wait", "class")} {
			require.NoError(t, c.ZRem(ctx, key, gone.Rank).Err())
		}
		require.NoError(t, c.HSet(ctx, b.db.Key("q", "job", gone.Key), "state", "running").Err())
		require.Equal(t, []string{"keep"}, window())
		must(b.Sweep(ctx, "hub/1", 10))
		require.Equal(t, []string{"keep", "added"}, window())
		require.Equal(t, keep.Key, b.next(0).Key)
	})
}

// A clock that jumps back charges nobody and gives nothing away.
func TestTagsStayFinite(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		b.SetLimits(queue.Limits{Weight: func(string) float64 { return 1e-9 }})
		b.enqueue("a")
		b.enqueue("b")
		b.next(math.MaxInt64)
		require.Equal(t, "b", b.next(math.MaxInt64).ID)
	})
}

// Lua cannot unpack thousands of values at once. Jobs of that many classes must not stop all
// others.
func TestWindowOfManyClasses(t *testing.T) {
	eachOf(t, queue.Options{}, orders, func(t *testing.T, b *bench, fifo bool) {
		b.SetLimits(queue.Limits{FIFO: fifo})
		b.enqueue("one")
		var others []string
		for n := range 9000 {
			others = append(others, fmt.Sprint("class", n))
		}
		require.Equal(t, []string{"one"}, ids(must(b.Window(t.Context(), queue.Wanted{But: others}, 0, 5)).Jobs))
	})
}

// Jobs of classes that nobody has named are wanted: that is how a hub hears of new ones.
func TestWindowHasUnknownClasses(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		w := must(b.Window(t.Context(), queue.Wanted{But: []string{"other"}}, 0, 5))
		require.Zero(t, w.Classes)
		for _, class := range []string{"class", "other", "third"} {
			b.enqueue("of "+class, func(s *queue.Submission) { s.Class = class })
		}
		w = must(b.Window(t.Context(), queue.Wanted{But: []string{"other"}}, 0, 5))
		require.Equal(t, []string{"of class", "of third"}, ids(w.Jobs))
		require.Equal(t, 3, w.Classes)
		w = must(b.Window(t.Context(), queue.Wanted{Reserved: true}, 0, 5))
		require.Empty(t, w.Jobs)
	})
}
