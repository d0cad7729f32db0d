package queue_test

import (
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/stats"
)

// A run that another hub takes over is billed for the time during which its holders renewed it,
// plus a few seconds for the gap, even if Redis's clock was set forward by an hour.
func TestBillOfARunThatWasTakenOver(t *testing.T) {
	t.Parallel()
	const seen, between = time.Minute, 15 * time.Second
	takeOvers := map[string]func(b *bench, run job.Run) (queue.Orphan, error){
		"found": func(b *bench, run job.Run) (queue.Orphan, error) { return b.Adopt(b.t.Context(), run, "hub2") },
		"swept": func(b *bench, run job.Run) (queue.Orphan, error) {
			if err := b.db.Client().ZAdd(b.t.Context(), b.db.Key("q", "leases"), goredis.Z{Member: run.Key}).Err(); err != nil {
				return queue.Orphan{}, err
			}
			orphans, err := b.Sweep(b.t.Context(), "hub2", 10)
			require.Len(b.t, orphans, 1)
			return orphans[0], err
		},
	}
	for how, takeOver := range takeOvers {
		t.Run(how, func(t *testing.T) {
			each(t, queue.Options{}, func(t *testing.T, b *bench) {
				run := b.claim(b.enqueue("one", from("a", "a")), "gpu").Run
				_, err := b.Sweep(t.Context(), run.Hub, 10) // hubs do this all the time
				require.NoError(t, err)
				record := b.db.Key("q", "job", run.Key)
				hourAgo := time.Now().Add(-time.Hour).UnixMilli()
				set := func(ran string) {
					t.Helper()
					require.NoError(t, b.db.Client().HSet(t.Context(), record, "claimed", hourAgo, "ran", ran).Err())
				}
				set(fmt.Sprint(seen.Milliseconds(), " ", time.Now().UnixMilli()))
				renewed, err := b.Renew(t.Context(), run.Hub, []job.Run{run})
				require.NoError(t, err)
				require.Empty(t, renewed.Lost)
				ran, err := b.db.Client().HGet(t.Context(), record, "ran").Result()
				require.NoError(t, err)
				var ms, at int64
				_, err = fmt.Sscan(ran, &ms, &at)
				require.NoError(t, err)
				set(fmt.Sprint(ms, " ", hourAgo)) // that is how it looks once the clock was set forward
				orphan, err := takeOver(b, run)
				require.NoError(t, err)
				require.NoError(t, b.Finish(t.Context(), orphan.Run, queue.Outcome{State: job.Done, Entry: []byte(`{}`)}))
				now, err := b.db.Now(t.Context())
				require.NoError(t, err)
				tenant := "a"
				rows, err := stats.NewUsage(b.db).Read(t.Context(), now, now, &tenant)
				require.NoError(t, err)
				require.Len(t, rows, 1)
				require.GreaterOrEqual(t, rows[0].Time, seen)
				require.Less(t, rows[0].Time, seen+2*between)
			})
		})
	}
}

// A run that nobody looked after for long, and that is then taken over, is billed as its instance says:
// not for less than its holders saw, and not for more than the time since it was claimed.
func TestBillOfARunThatWasAlone(t *testing.T) {
	t.Parallel()
	const gap = 15 * time.Second // the most that counts without anybody looking
	for name, c := range map[string]struct{ since, seen, told, low, high time.Duration }{
		"it says":                 {11 * time.Minute, time.Minute, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute},
		"it says too much":        {11 * time.Minute, time.Minute, time.Hour, 11 * time.Minute, 12 * time.Minute},
		"it says too little":      {11 * time.Minute, time.Minute, time.Second, time.Minute, time.Minute + 2*gap},
		"it says nothing":         {11 * time.Minute, time.Minute, 0, time.Minute, time.Minute + 2*gap},
		"it was claimed just now": {time.Second, time.Second, time.Hour, time.Second, gap},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, queue.Options{}, func(t *testing.T, b *bench) {
				run := b.claim(b.enqueue("one", from("a", "a")), "gpu").Run
				began := time.Now().Add(-c.since)
				require.NoError(t, b.db.Client().HSet(t.Context(), b.db.Key("q", "job", run.Key),
					"claimed", began.UnixMilli(), "ran", fmt.Sprint(c.seen.Milliseconds(), " ", began.Add(c.seen).UnixMilli())).Err())
				orphan, err := b.Adopt(t.Context(), run, "hub2")
				require.NoError(t, err)
				orphan.Run.Told = c.told
				require.NoError(t, b.Finish(t.Context(), orphan.Run, queue.Outcome{State: job.Done, Entry: []byte(`{}`)}))
				now, err := b.db.Now(t.Context())
				require.NoError(t, err)
				tenant := "a"
				rows, err := stats.NewUsage(b.db).Read(t.Context(), now, now, &tenant)
				require.NoError(t, err)
				require.Len(t, rows, 1)
				require.GreaterOrEqual(t, rows[0].Time, c.low)
				require.LessOrEqual(t, rows[0].Time, c.high)
			})
		})
	}
}

// If Redis's clock is set forward by a day, a tenant at its limit may post a minute's worth of
// prompts at once, and then goes on as before.
func TestRateWhenTheClockIsSetForward(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		const rate = 3
		b.SetLimits(queue.Limits{TenantRate: func(string) int { return rate }})
		posts := func(day int) (accepted int) {
			t.Helper()
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
