package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// life is what happens to each job: five transitions and three reads.
func life(tb testing.TB, b *bench) {
	ctx := tb.Context()
	accepted := must(b.Enqueue(ctx, submission(uuid.NewString())))
	heads := must(b.Peek(ctx, []string{"class"}, 1))
	claimed := must(b.Claim(ctx, queue.ClaimRequest{Key: heads[0].Key, Instance: accepted.Job.Key, Hub: "h", Upstream: "u"}))
	must(b.Body(ctx, claimed.Key))
	require.NoError(tb, b.Started(ctx, claimed.Run))
	require.NoError(tb, b.Release(ctx, claimed.Run))
	require.NoError(tb, b.Finish(ctx, claimed.Run, queue.Outcome{State: job.Done, Entry: []byte(`{"x":1}`)}))
}

// BenchmarkLife takes a job through its life while others wait, and prints how
// much slower the embedded server is.
func BenchmarkLife(b *testing.B) {
	for _, backlog := range []int{0, 1000, 5000} {
		each := map[string]time.Duration{}
		for _, kind := range []string{"server", "embedded"} {
			b.Run(fmt.Sprintf("%s/waiting=%d", kind, backlog), func(b *testing.B) {
				var db *redis.DB
				if kind == "server" {
					db = redistest.Open(b, redistest.Start(b).URL())
				} else {
					db = redistest.Embedded(b)
				}
				q := on(b, db, queue.Options{})
				for range backlog {
					q.enqueue(uuid.NewString())
				}
				b.ResetTimer()
				for b.Loop() {
					life(b, q)
				}
				each[kind] = b.Elapsed() / time.Duration(b.N)
				if each["server"] > 0 {
					b.ReportMetric(float64(each[kind])/float64(each["server"]), "times-server")
				}
			})
		}
	}
}
