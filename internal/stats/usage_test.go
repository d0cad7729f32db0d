package stats

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

var billScript = redis.NewScript("usage/test", redis.Write, BillLua, `bill(ARGV[1], ARGV[2], tonumber(ARGV[3])) return {'ok'}`)

func bill(t *testing.T, db *redis.DB, tenant, kind string, amount int64) {
	must(db.Run(t.Context(), billScript, tenant, kind, amount))
}

func TestUsage(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		u := NewUsage(db)
		for range 3 {
			bill(t, db, "ann", "done", 1)
			bill(t, db, "ann", "ms", 1500)
		}
		bill(t, db, "ann", "failed", 1)
		bill(t, db, "ann", "bytes", 1<<40)
		bill(t, db, "ann", "bytes", -5)
		bill(t, db, "studio: b", "cancelled", 1)
		bill(t, db, "ann2", "done", 7)
		now := must(db.Now(t.Context()))
		from, to := now.Add(-24*time.Hour), now.Add(24*time.Hour) // the day may change meanwhile
		sum := func(tenant *string) map[string]Day {
			rows := must(u.Read(t.Context(), from, to, tenant))
			all := map[string]Day{}
			for _, r := range rows {
				have := all[r.Tenant]
				all[r.Tenant] = Day{
					Done: have.Done + r.Done, Failed: have.Failed + r.Failed, Cancelled: have.Cancelled + r.Cancelled,
					Time: have.Time + r.Time, Bytes: have.Bytes + r.Bytes,
				}
			}
			return all
		}
		ann := Day{Done: 3, Failed: 1, Time: 4500 * time.Millisecond, Bytes: 1 << 40}
		require.Equal(t, map[string]Day{"ann": ann, "studio: b": {Cancelled: 1}, "ann2": {Done: 7}}, sum(nil))
		name, nobody := "ann", ""
		require.Equal(t, map[string]Day{"ann": ann}, sum(&name))
		require.Empty(t, sum(&nobody), "nobody is not everybody")

		keys := must(db.Client().Keys(t.Context(), db.Key("usage", "*")).Result())
		require.NotEmpty(t, keys)
		for _, key := range keys {
			ttl := must(db.Client().PTTL(t.Context(), key).Result())
			require.InDelta(t, UsageDays*24*time.Hour, ttl, float64(48*time.Hour), "a day ends")
		}
	})
}

func TestUsageIsBounded(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		now := must(db.Now(t.Context()))
		for _, day := range []time.Time{now, now.Add(24 * time.Hour)} { // it may change meanwhile
			key := db.Key("usage", fmt.Sprint(dayOf(day)))
			for n := 0; n < 50_000; n += 1000 {
				fields := make([]any, 0, 2000)
				for i := range 1000 {
					fields = append(fields, fmt.Sprint("done:t", n+i), 1)
				}
				require.NoError(t, db.Client().HSet(t.Context(), key, fields...).Err())
			}
		}
		bill(t, db, "one more", "done", 2)
		bill(t, db, "t7", "done", 1)
		u := NewUsage(db)
		for name, want := range map[string]int64{"one more": 0, "": 2, "t7": 1 + 1 + 1} {
			rows := must(u.Read(t.Context(), now, now.Add(24*time.Hour), &name))
			var done int64
			for _, r := range rows {
				done += r.Done
			}
			require.Equal(t, want, done, name)
		}
		rows := must(u.Read(t.Context(), now, now, nil))
		require.GreaterOrEqual(t, len(rows), 50_000)
	})
}

func TestDaysThatAreNone(t *testing.T) {
	t.Parallel()
	u := NewUsage(redistest.Embedded(t))
	at := func(day string) time.Time { d := must(time.Parse(time.DateOnly, day)); return d }
	for _, c := range [][2]string{{"2026-01-02", "2026-01-01"}, {"2024-01-01", "2026-01-01"}, {"1960-01-01", "1960-01-02"}} {
		_, err := u.Read(t.Context(), at(c[0]), at(c[1]), nil)
		require.ErrorIs(t, err, ErrDays, c)
	}
	must(u.Read(t.Context(), at("2025-01-01"), at("2025-12-31"), nil))
}

// spentOn returns how often a Redis server has run a command, and how long all of these took,
// in microseconds.
func spentOn(tb testing.TB, db *redis.DB, command string) (calls, usec float64) {
	info := must(db.Client().Info(tb.Context(), "commandstats").Result())
	found := regexp.MustCompile(`cmdstat_` + command + `:calls=(\d+),usec=(\d+)`).FindStringSubmatch(info)
	if found == nil {
		return 0, 0
	}
	calls = must(strconv.ParseFloat(found[1], 64))
	usec = must(strconv.ParseFloat(found[2], 64))
	return calls, usec
}

// What is billed already costs one command more each time.
func TestBillIsOneCommand(t *testing.T) {
	t.Parallel()
	db := redistest.Open(t, redistest.Start(t).URL())
	count := func() map[string]float64 {
		out := map[string]float64{}
		for _, command := range []string{"hincrby", "hexists", "hlen", "pexpireat", "evalsha", "hget"} {
			out[command], _ = spentOn(t, db, command)
		}
		return out
	}
	bill(t, db, "ann", "done", 1)
	before := count()
	for range 10 {
		bill(t, db, "ann", "done", 1)
	}
	after := count()
	for command, calls := range before {
		after[command] -= calls
	}
	if after["pexpireat"] > 0 {
		t.Skip("the day has changed meanwhile")
	}
	require.Equal(t, map[string]float64{"hincrby": 10, "hexists": 0, "hlen": 0, "pexpireat": 0, "evalsha": 10, "hget": 0}, after)
}

// BenchmarkBill prints how long a Redis server works for the three bills of a prompt: its end,
// its time, and its file. They are in scripts that a prompt needs anyway.
func BenchmarkBill(b *testing.B) {
	each := map[string]float64{}
	for _, c := range []struct{ name, text string }{
		{"none", `now() return {'ok'}`},
		{"three", `bill('ann', 'done', 1) bill('ann', 'ms', 1500) bill('ann', 'bytes', 5000) return {'ok'}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			db := redistest.Open(b, redistest.Start(b).URL())
			script := redis.NewScript("usage/"+c.name, redis.Write, BillLua, c.text)
			_, before := spentOn(b, db, "evalsha")
			for b.Loop() {
				must(db.Run(b.Context(), script))
			}
			_, after := spentOn(b, db, "evalsha")
			each[c.name] = (after - before) / float64(b.N)
			b.ReportMetric(each[c.name], "redis-us/op")
			b.ReportMetric(each[c.name]-each["none"], "more-us/op")
		})
	}
}
