package queue_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// BenchmarkClasses looks at 10,000 waiting jobs of eight tenants, which are of one class or
// of a thousand. It prints how long Redis is blocked by a look, and how much longer than
// with one class if all thousand are wanted, or half of them.
func BenchmarkClasses(b *testing.B) {
	for _, order := range []string{"fair", "fifo"} {
		one := map[int]float64{}
		for _, classes := range []int{1, 1000} {
			db := redistest.Open(b, redistest.Start(b).URL())
			q := on(b, db, queue.Options{})
			q.SetLimits(queue.Limits{FIFO: order == "fifo"})
			names := waitingClasses(q, 10_000, classes)
			for _, n := range []int{1, 17, 256} {
				for _, but := range [][]string{nil, names[len(names)/2:]} {
					if classes == 1 && but != nil {
						continue
					}
					b.Run(fmt.Sprintf("%s/jobs=%d/classes=%d/unwanted=%d", order, n, classes, len(but)), func(b *testing.B) {
						begin := scriptTime(b, db)
						for b.Loop() {
							require.Len(b, must(q.Window(b.Context(), queue.Wanted{But: but}, 0, n)).Jobs, n)
						}
						each := (scriptTime(b, db) - begin) / float64(b.N)
						if classes == 1 {
							one[n] = each
						}
						b.ReportMetric(each, "redis-us/op")
						b.ReportMetric(each/one[n], "times-one")
					})
				}
			}
		}
	}
}

// waitingClasses posts jobs of some classes for eight tenants, and returns the classes.
func waitingClasses(b *bench, jobs, classes int) []string {
	names := make([]string, classes)
	for c := range names {
		names[c] = fmt.Sprintf("%064d", c)
	}
	for n := range jobs {
		tenant := strconv.Itoa(n % 8)
		b.enqueue(uuid.NewString(), from(tenant, tenant), func(s *queue.Submission) { s.Class = names[n*7919%classes] })
	}
	return names
}

var scriptUsec = regexp.MustCompile(`cmdstat_evalsha(?:_ro)?:calls=[0-9]+,usec=([0-9]+)`)

// scriptTime returns for how many microseconds scripts have blocked a redis-server.
func scriptTime(tb testing.TB, db *redis.DB) (usec float64) {
	tb.Helper()
	text := must(db.Client().Info(tb.Context(), "commandstats").Result())
	for _, match := range scriptUsec.FindAllStringSubmatch(text, -1) {
		n := must(strconv.ParseFloat(match[1], 64))
		usec += n
	}
	return usec
}
