package queue_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// BenchmarkScale gives out jobs one by one while others wait, and puts as many back. It
// prints how much longer a look and a claim take with 100,000 jobs in 1,000 tenants and
// 20 classes than with 1,000 jobs in 10 tenants.
func BenchmarkScale(b *testing.B) {
	var small float64
	for _, size := range []struct{ jobs, tenants, classes int }{{1000, 10, 10}, {100_000, 1000, 20}} {
		b.Run(fmt.Sprintf("waiting=%d/tenants=%d", size.jobs, size.tenants), func(b *testing.B) {
			q := on(b, redistest.Open(b, redistest.Start(b).URL()), queue.Options{MaxQueue: 2 * size.jobs})
			classes := make([]string, size.classes)
			for n := range classes {
				classes[n] = fmt.Sprint("class", n)
			}
			post := func(n int) {
				tenant := strconv.Itoa(n % size.tenants)
				q.enqueue(uuid.NewString(), from(tenant, tenant), func(s *queue.Submission) {
					s.Class = classes[n*7919%size.classes]
				})
			}
			for n := range size.jobs {
				post(n)
			}
			count := 0
			give := func(n int) {
				w := must(q.Window(b.Context(), queue.Wanted{}, 0, n))
				require.Len(b, w.Jobs, n)
				must(q.Claim(b.Context(), queue.ClaimRequest{
					Key: w.Jobs[0].Key, Tenant: w.Jobs[0].Tenant, Instance: uuid.NewString(), Hub: "h", Upstream: "u",
				}))
			}
			give(1)
			for b.Loop() {
				give(1)
				b.StopTimer()
				post(count)
				count++
				b.StartTimer()
			}
			each := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
			if small == 0 {
				small = each
			}
			b.ReportMetric(each/small, "times-small")
		})
	}
}
