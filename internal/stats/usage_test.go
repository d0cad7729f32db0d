package stats

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

var billScript = redis.NewScript("usage/test", redis.Write, BillLua, `bill(ARGV[1], ARGV[2], tonumber(ARGV[3])) return {'ok'}`)

func bill(t *testing.T, db *redis.DB, tenant, kind string, amount int64) {
	t.Helper()
	_, err := db.Run(t.Context(), billScript, tenant, kind, amount)
	require.NoError(t, err)
}

func TestUsage(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) {
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
		now, err := db.Now(t.Context())
		require.NoError(t, err)
		from, to := now.Add(-24*time.Hour), now.Add(24*time.Hour) // the day may change meanwhile
		sum := func(tenant *string) map[string]Day {
			rows, err := u.Read(t.Context(), from, to, tenant)
			require.NoError(t, err)
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

		keys, err := db.Client().Keys(t.Context(), db.Key("usage", "*")).Result()
		require.NoError(t, err)
		require.NotEmpty(t, keys)
		for _, key := range keys {
			ttl, err := db.Client().PTTL(t.Context(), key).Result()
			require.NoError(t, err)
			require.InDelta(t, UsageDays*24*time.Hour, ttl, float64(48*time.Hour), "a day ends")
		}
	})
}

func TestUsageIsBounded(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) {
		now, err := db.Now(t.Context())
		require.NoError(t, err)
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
			rows, err := u.Read(t.Context(), now, now.Add(24*time.Hour), &name)
			require.NoError(t, err)
			var done int64
			for _, r := range rows {
				done += r.Done
			}
			require.Equal(t, want, done, name)
		}
		rows, err := u.Read(t.Context(), now, now, nil)
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(rows), 50_000)
	})
}

func TestDaysThatAreNone(t *testing.T) {
	t.Parallel()
	u := NewUsage(redistest.Embedded(t))
	at := func(day string) time.Time {
		d, err := time.Parse(time.DateOnly, day)
		require.NoError(t, err)
		return d
	}
	for _, c := range [][2]string{{"2026-01-02", "2026-01-01"}, {"2024-01-01", "2026-01-01"}, {"1960-01-01", "1960-01-02"}} {
		_, err := u.Read(t.Context(), at(c[0]), at(c[1]), nil)
		require.ErrorIs(t, err, ErrDays, c)
	}
	_, err := u.Read(t.Context(), at("2025-01-01"), at("2025-12-31"), nil)
	require.NoError(t, err)
}
