package stats

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// Hubs add what they have counted, whatever else a bucket has.
func TestHubsAddUp(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		one, two := NewTrends(db), NewTrends(db)
		require.NoError(t, one.Flush(t.Context()), "nothing to add")
		for range 9 {
			one.Waited(400 * time.Millisecond)
			one.Switched(true)
			one.Ended("done")
		}
		two.Waited(50 * time.Second)
		two.Ended("lost")
		two.Ended("rejected") // is none of the outcomes
		one.Used(4*time.Second, 10*time.Second)
		two.Used(1*time.Second, 10*time.Second)
		require.NoError(t, one.Flush(t.Context()))
		// What a later version counts stays.
		must(db.Run(t.Context(), addTrends, Width.Milliseconds(), buckets, "novel", 3))
		require.NoError(t, two.Flush(t.Context()))
		require.NoError(t, two.Flush(t.Context()), "it is added once")
		day := must(one.Day(t.Context()))
		sum := Bucket{Ended: map[string]int64{}}
		for _, b := range day { // two if the clock went past a boundary
			sum.Busy, sum.Up = sum.Busy+b.Busy, sum.Up+b.Up
			for outcome, n := range b.Ended {
				sum.Ended[outcome] += n
			}
			require.WithinDuration(t, time.Now(), time.UnixMilli(b.At), 2*Width)
		}
		require.Equal(t, map[string]int64{"done": 9, "failed": 0, "cancelled": 0, "lost": 1}, sum.Ended)
		require.Equal(t, int64(5000), sum.Busy)
		require.Equal(t, int64(20000), sum.Up)
		stored := must(db.Client().HGetAll(t.Context(), db.Key("h", "trends")).Result())
		text := ""
		for _, value := range stored {
			text += value
		}
		require.Contains(t, text, "novel=3")
		require.NotContains(t, text, "rejected")
	})
}

// Buckets of yesterday go.
func TestOldBucketsGo(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		fill := redis.NewScript("test/fill", redis.Write, `
for i = 1, 1000 do
  write('HSET', key('h', 'trends'), int(i), 'done=1')
end
return {'ok'}`)
		must(db.Run(t.Context(), fill))
		trends := NewTrends(db)
		trends.Ended("done")
		require.NoError(t, trends.Flush(t.Context()))
		require.Len(t, must(trends.Day(t.Context())), 1)
	})
}

func TestQuantiles(t *testing.T) {
	t.Parallel()
	b := decodeBucket(0, "w0=50 w3=45 w8=5 done=x odd w99=1 failed=-1")
	require.InDelta(t, .1, b.P50, .001)
	require.InDelta(t, 1, b.P95, .001)
	require.Zero(t, b.Ended["done"])
	require.Zero(t, b.Ended["failed"])
	require.InDelta(t, -1, decodeBucket(0, "").P50, 0)
	last := Steps()[len(Steps())-1]
	require.InDelta(t, last, decodeBucket(0, "w23=1").P95, 0, "beyond all steps")
}

func FuzzDecodeBucket(f *testing.F) {
	f.Add("done=1 w0=5 busy=7 up=9")
	f.Add("= == a=b w0=9223372036854775807 w1=9223372036854775807")
	f.Fuzz(func(t *testing.T, text string) {
		b := decodeBucket(0, text)
		require.Len(t, b.Ended, len(Outcomes()))
		require.GreaterOrEqual(t, b.P95, b.P50, strings.TrimSpace(text))
	})
}
