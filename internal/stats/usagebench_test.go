package stats

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// spentOn returns how often a Redis server has run a command, and how long all of these took,
// in microseconds.
func spentOn(tb testing.TB, db *redis.DB, command string) (calls, usec float64) {
	tb.Helper()
	info, err := db.Client().Info(tb.Context(), "commandstats").Result()
	require.NoError(tb, err)
	found := regexp.MustCompile(`cmdstat_` + command + `:calls=(\d+),usec=(\d+)`).FindStringSubmatch(info)
	if found == nil {
		return 0, 0
	}
	calls, err = strconv.ParseFloat(found[1], 64)
	require.NoError(tb, err)
	usec, err = strconv.ParseFloat(found[2], 64)
	require.NoError(tb, err)
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
				_, err := db.Run(b.Context(), script)
				require.NoError(b, err)
			}
			_, after := spentOn(b, db, "evalsha")
			each[c.name] = (after - before) / float64(b.N)
			b.ReportMetric(each[c.name], "redis-us/op")
			b.ReportMetric(each[c.name]-each["none"], "more-us/op")
		})
	}
}
