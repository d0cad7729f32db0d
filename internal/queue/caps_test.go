package queue_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/stats"
)

// limited sets the limits of the tenant "a".
func (b *bench) limited(fifo bool, running int, daily time.Duration) {
	b.SetLimits(queue.Limits{FIFO: fifo, TenantRuns: func(tenant string) (int, time.Duration) {
		if tenant != "a" {
			return 0, 0
		}
		return running, daily
	}})
}

// try claims a job on an instance of its own.
func (b *bench) try(j job.Job) (job.Job, error) {
	return b.Claim(b.t.Context(), queue.ClaimRequest{
		Key: j.Key, Tenant: j.Tenant, Instance: uuid.NewString(), Hub: "hub/1", Upstream: uuid.NewString(),
	})
}

// seen returns the tenants of the jobs that may be given out.
func (b *bench) seen() (tenants []string) {
	w := must(b.Window(b.t.Context(), queue.Wanted{}, 0, 100))
	for _, j := range w.Jobs {
		tenants = append(tenants, j.Tenant)
	}
	return tenants
}

// A tenant has no more runs at once than its limit allows, and its other jobs hold up nobody.
func TestTenantRunsAtOnce(t *testing.T) {
	eachOf(t, queue.Options{}, orders, func(t *testing.T, b *bench, fifo bool) {
		b.limited(fifo, 2, 0)
		var own []job.Job
		for n := range 4 {
			own = append(own, b.enqueue(fmt.Sprint("a", n), from("a", "a")))
		}
		other := b.enqueue("b", from("b", "b"))
		var runs []job.Run
		for _, j := range own[:2] {
			claimed := must(b.try(j))
			runs = append(runs, claimed.Run)
		}
		require.ElementsMatch(t, []string{"a", "a", "b"}, b.seen())
		require.ErrorIs(t, errOf(b.try(own[2])), queue.ErrCapped)
		require.Equal(t, job.Queued, b.get(own[2].Key).State)
		require.Equal(t, []string{"b"}, b.seen())
		require.Positive(t, must(b.Window(t.Context(), queue.Wanted{}, 0, 100)).Next, "a hub looks again even if it hears of nothing")

		require.NoError(t, b.Release(t.Context(), runs[0]))
		require.ElementsMatch(t, []string{"a", "a", "b"}, b.seen(), "at once")
		must(b.try(own[2]))
		require.ErrorIs(t, errOf(b.try(own[3])), queue.ErrCapped)
		// A lost run frees its seat too.
		must(b.Requeue(t.Context(), runs[1], queue.RequeueOptions{Reason: "lost"}))
		must(b.try(own[3]))
		must(b.try(other))

		require.Equal(t, queue.Usage{Running: 2}, must(b.Usage(t.Context(), "a")))
	})
}

// Runs that a hub of an older version has ended do not hold seats for ever.
func TestSeatsOfAnOlderHub(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		b.limited(false, 2, 0)
		claimed := must(b.try(b.enqueue("a0", from("a", "a"))))
		seats := b.db.Key("q", "seats", "a")
		require.NoError(t, b.db.Client().SAdd(t.Context(), seats, "gone").Err())
		require.NoError(t, b.db.Client().HSet(t.Context(), b.db.Key("q", "job", claimed.Key), "released", "1").Err())
		for n := range 2 {
			must(b.try(b.enqueue(fmt.Sprint("b", n), from("a", "a"))))
		}
		require.ErrorIs(t, errOf(b.try(b.enqueue("c", from("a", "a")))), queue.ErrCapped)
	})
}

// What a tenant has used within a day counts; once it is used up, the tenant may neither post nor
// begin.
func TestTenantTimeOfADay(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		b.limited(false, 0, time.Hour)
		waiting := b.enqueue("a0", from("a", "a"))
		spent, hour := b.db.Key("q", "spent", "a"), time.Now().Unix()/3600
		set := func(ago int64, took time.Duration) {
			require.NoError(t, b.db.Client().HSet(t.Context(), spent, strconv.FormatInt(hour-ago, 10), took.Milliseconds()).Err())
		}
		usage := func() queue.Usage { return must(b.Usage(t.Context(), "a")) }
		set(26, 10*time.Hour) // long over
		require.Zero(t, usage())
		set(20, 40*time.Minute)
		set(10, 19*time.Minute)
		require.Equal(t, queue.Usage{Spent: 59 * time.Minute}, usage())
		require.NoError(t, b.Release(t.Context(), must(b.try(waiting)).Run))
		more := b.enqueue("a1", from("a", "a"))

		set(10, 20*time.Minute)
		used := usage()
		require.GreaterOrEqual(t, used.Spent, time.Hour)
		require.Greater(t, used.Wait, 3*time.Hour)
		require.Less(t, used.Wait, 6*time.Hour, "when the run of 20 hours ago counts no longer")
		err := errOf(b.Enqueue(t.Context(), submission("a2", from("a", "a"))))
		require.ErrorIs(t, err, queue.ErrTenantSpent)
		var refused queue.SpentError
		require.ErrorAs(t, err, &refused)
		require.InDelta(t, used.Wait, refused.Wait, float64(time.Minute))
		require.ErrorIs(t, errOf(b.try(more)), queue.ErrCapped)
		require.Empty(t, b.seen())
		b.enqueue("b", from("b", "b"))
		require.Equal(t, []string{"b"}, b.seen())
	})
}

// The time of a run counts once, for the hour in which it ends; a lost one is free.
func TestTimeOfARun(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		b.limited(false, 0, time.Hour)
		run := func(id string) job.Run {
			j := must(b.try(b.enqueue(id, from("a", "a"))))
			claimed := time.Now().Add(-10 * time.Minute).UnixMilli()
			require.NoError(t, b.db.Client().HSet(t.Context(), b.db.Key("q", "job", j.Key), "claimed", claimed, "ran", "").Err())
			return j.Run
		}
		must(b.Requeue(t.Context(), run("lost"), queue.RequeueOptions{Reason: "lost"}))
		ended := run("ended")
		require.NoError(t, b.Release(t.Context(), ended))
		require.NoError(t, b.Finish(t.Context(), ended, queue.Outcome{State: job.Done, Entry: []byte("{}")}))
		require.InDelta(t, 10*time.Minute, must(b.Usage(t.Context(), "a")).Spent, float64(10*time.Second))
		if b.db.Embedded() {
			return // it has no such command
		}
		require.Positive(t, must(b.db.Client().TTL(t.Context(), b.db.Key("q", "spent", "a")).Result()))
	})
}

// A tenant may post a minute's worth of prompts at once, and then one at a time; others are not
// held up.
func TestTenantRate(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		b.SetLimits(queue.Limits{TenantRate: func(tenant string) int {
			return map[string]int{"a": 3, "b": 60_000}[tenant]
		}})
		post := func(id, tenant string) error {
			_, err := b.Enqueue(t.Context(), submission(id, from(tenant, tenant)))
			return err
		}
		for n := range 3 {
			require.NoError(t, post(fmt.Sprint("a", n), "a"))
		}
		var rate queue.RateError
		require.ErrorAs(t, post("a3", "a"), &rate)
		require.ErrorIs(t, rate, queue.ErrTenantRate)
		require.LessOrEqual(t, rate.Wait, 20*time.Second)
		require.Positive(t, rate.Wait)
		require.NoError(t, post("a0", "a"), "the same prompt again is no further one")
		for n := range 10 {
			require.NoError(t, post(fmt.Sprint("b", n), "b"))
			require.NoError(t, post(fmt.Sprint("c", n), "c"))
		}
		// Twenty seconds later, one more.
		key := b.db.Key("q", "rate", "a")
		ttl := must(b.db.Client().PTTL(t.Context(), key).Result())
		require.InDelta(t, time.Minute, ttl, float64(30*time.Second), "and nothing is left of it then")
		require.NoError(t, b.db.Client().Set(t.Context(), key, must(b.db.Client().Get(t.Context(), key).Int64())-20_000_000, 0).Err())
		require.NoError(t, post("a4", "a"))
		require.ErrorAs(t, post("a5", "a"), &rate)
	})
}

// Each end of a job and the time of each run is billed once; a lost run is not billed.
func TestBilledJobs(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		billed := func() (sum stats.Day) {
			now := must(b.db.Now(t.Context()))
			tenant := "a"
			for _, r := range must(stats.NewUsage(b.db).Read(t.Context(), now.Add(-24*time.Hour), now.Add(24*time.Hour), &tenant)) { // two, if the day changes meanwhile
				sum.Done, sum.Failed, sum.Cancelled, sum.Time = sum.Done+r.Done, sum.Failed+r.Failed, sum.Cancelled+r.Cancelled, sum.Time+r.Time
			}
			return sum
		}
		// begun is a run that began five minutes ago.
		begun := func(j job.Job, instance string) job.Job {
			claimed := b.claim(j, instance)
			at := time.Now().Add(-5 * time.Minute).UnixMilli()
			require.NoError(t, b.db.Client().HSet(t.Context(), b.db.Key("q", "job", claimed.Key), "claimed", at, "ran", "").Err())
			return claimed
		}
		minutes := func(n int) { require.InDelta(t, time.Duration(n)*time.Minute, billed().Time, float64(time.Minute)) }
		end := func(j job.Job, state job.State) {
			require.NoError(t, b.Finish(t.Context(), j.Run, queue.Outcome{State: state, Entry: []byte(`{}`)}))
		}
		one := begun(b.enqueue("one", from("a", "a")), "i1")
		require.NoError(t, b.Release(t.Context(), one.Run))
		minutes(5)
		end(one, job.Done)
		end(one, job.Done) // sent again
		minutes(5)
		require.EqualValues(t, 1, billed().Done)

		two := begun(b.enqueue("two", from("a", "a")), "i1")
		must(b.Requeue(t.Context(), two.Run, queue.RequeueOptions{Reason: "lost"}))
		minutes(5)
		end(begun(two, "i2"), job.Failed)
		minutes(10)
		end(begun(b.enqueue("three", from("a", "a")), "i1"), job.Cancelled)
		minutes(15)
		sum := billed()
		require.EqualValues(t, 1, sum.Done)
		require.EqualValues(t, 1, sum.Failed)
		require.EqualValues(t, 1, sum.Cancelled)
	})
}

// If Redis's clock is set forward by five minutes during a run, the bill is what the holder
// measured, however it reports the end of the run.
func TestBillIsWhatTheHolderHasMeasured(t *testing.T) {
	eachOf(t, queue.Options{}, map[string]func(t *testing.T, b *bench, run job.Run) error{
		"released": func(t *testing.T, b *bench, run job.Run) error { return b.Release(t.Context(), run) },
		"finished": func(t *testing.T, b *bench, run job.Run) error {
			return b.Finish(t.Context(), run, queue.Outcome{State: job.Done, Entry: []byte(`{}`)})
		},
		"followed by the next": func(t *testing.T, b *bench, run job.Run) error {
			next := b.enqueue("next", from("b", "b"))
			_, err := b.Claim(t.Context(), queue.ClaimRequest{Key: next.Key, Tenant: "b", Instance: run.Instance, Hub: run.Hub, Upstream: "next", After: run})
			return err
		},
	}, func(t *testing.T, b *bench, end func(t *testing.T, b *bench, run job.Run) error) {
		run := b.claim(b.enqueue("one", from("a", "a")), "gpu").Run
		at := time.Now().Add(-5 * time.Minute).UnixMilli()
		require.NoError(t, b.db.Client().HSet(t.Context(), b.db.Key("q", "job", run.Key), "claimed", at, "ran", "").Err())
		run.Took = 3 * time.Second
		require.NoError(t, end(t, b, run))
		require.Equal(t, 3*time.Second, b.billed())
	})
}

// billed is the time that the tenant a has to pay for.
func (b *bench) billed() (sum time.Duration) {
	now, tenant := must(b.db.Now(b.t.Context())), "a"
	for _, day := range must(stats.NewUsage(b.db).Read(b.t.Context(), now.Add(-24*time.Hour), now, &tenant)) {
		sum += day.Time
	}
	return sum
}

// A run that another hub takes over is billed for the time during which its holders renewed it,
// plus a few seconds for the gap, even if Redis's clock was set forward by an hour.
func TestBillOfARunThatWasTakenOver(t *testing.T) {
	const seen, between = time.Minute, 15 * time.Second
	eachOf(t, queue.Options{}, map[string]func(b *bench, run job.Run) queue.Orphan{
		"found": func(b *bench, run job.Run) queue.Orphan { return must(b.Adopt(b.t.Context(), run, "hub2")) },
		"swept": func(b *bench, run job.Run) queue.Orphan {
			b.expire(run)
			return must(b.Sweep(b.t.Context(), "hub2", 10))[0]
		},
	}, func(t *testing.T, b *bench, takeOver func(b *bench, run job.Run) queue.Orphan) {
		run := b.claim(b.enqueue("one", from("a", "a")), "gpu").Run
		must(b.Sweep(t.Context(), run.Hub, 10)) // hubs do this all the time
		record := b.db.Key("q", "job", run.Key)
		hourAgo := time.Now().Add(-time.Hour).UnixMilli()
		set := func(ran string) {
			require.NoError(t, b.db.Client().HSet(t.Context(), record, "claimed", hourAgo, "ran", ran).Err())
		}
		set(fmt.Sprint(seen.Milliseconds(), " ", time.Now().UnixMilli()))
		require.Empty(t, must(b.Renew(t.Context(), run.Hub, []job.Run{run})).Lost)
		ran := must(b.db.Client().HGet(t.Context(), record, "ran").Result())
		var ms, at int64
		must(fmt.Sscan(ran, &ms, &at))
		set(fmt.Sprint(ms, " ", hourAgo)) // that is how it looks once the clock was set forward
		orphan := takeOver(b, run)
		require.NoError(t, b.Finish(t.Context(), orphan.Run, queue.Outcome{State: job.Done, Entry: []byte(`{}`)}))
		require.GreaterOrEqual(t, b.billed(), seen)
		require.Less(t, b.billed(), seen+2*between)
	})
}

// A run that nobody looked after for long, and that is then taken over, is billed as its instance says:
// not for less than its holders saw, and not for more than the time since it was claimed.
func TestBillOfARunThatWasAlone(t *testing.T) {
	type row struct{ since, seen, told, low, high time.Duration }
	const gap = 15 * time.Second // the most that counts without anybody looking
	eachOf(t, queue.Options{}, map[string]row{
		"it says":                 {11 * time.Minute, time.Minute, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute},
		"it says too much":        {11 * time.Minute, time.Minute, time.Hour, 11 * time.Minute, 12 * time.Minute},
		"it says too little":      {11 * time.Minute, time.Minute, time.Second, time.Minute, time.Minute + 2*gap},
		"it says nothing":         {11 * time.Minute, time.Minute, 0, time.Minute, time.Minute + 2*gap},
		"it was claimed just now": {time.Second, time.Second, time.Hour, time.Second, gap},
	}, func(t *testing.T, b *bench, c row) {
		run := b.claim(b.enqueue("one", from("a", "a")), "gpu").Run
		began := time.Now().Add(-c.since)
		require.NoError(t, b.db.Client().HSet(t.Context(), b.db.Key("q", "job", run.Key),
			"claimed", began.UnixMilli(), "ran", fmt.Sprint(c.seen.Milliseconds(), " ", began.Add(c.seen).UnixMilli())).Err())
		orphan := must(b.Adopt(t.Context(), run, "hub2"))
		orphan.Run.Told = c.told
		require.NoError(t, b.Finish(t.Context(), orphan.Run, queue.Outcome{State: job.Done, Entry: []byte(`{}`)}))
		require.GreaterOrEqual(t, b.billed(), c.low)
		require.LessOrEqual(t, b.billed(), c.high)
	})
}

// If Redis's clock is set forward by a day, a tenant at its limit may post a minute's worth of
// prompts at once, and then goes on as before.
func TestRateWhenTheClockIsSetForward(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		const rate = 3
		b.SetLimits(queue.Limits{TenantRate: func(string) int { return rate }})
		posts := func(day int) (accepted int) {
			for {
				_, err := b.Enqueue(t.Context(), submission(fmt.Sprint(day, "-", accepted), from("a", "a")))
				if err != nil {
					require.ErrorIs(t, err, queue.ErrTenantRate)
					return accepted
				}
				accepted++
			}
		}
		for day := range 3 {
			ahead := time.Duration(day) * 24 * time.Hour
			require.NoError(t, b.db.Client().HSet(t.Context(), b.db.Key("clock"), "ahead", ahead.Milliseconds()).Err())
			require.Equal(t, rate, posts(day))
		}
	})
}
