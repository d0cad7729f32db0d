//go:build unix

package queue_test

import (
	"context"
	"regexp"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// BenchmarkListing lists 10,000 waiting jobs of one tenant: as a page needs them, with everything
// that may have changed, and by reading each record in full. It prints the processor time of this
// process and of redis-server, and the bytes allocated.
func BenchmarkListing(b *testing.B) {
	for _, kind := range []string{"server", "embedded"} {
		var db *redis.DB
		if kind == "server" {
			db = redistest.Open(b, redistest.Start(b).URL())
		} else {
			db = redistest.Embedded(b)
		}
		q := on(b, db, queue.Options{})
		for range 10_000 {
			q.enqueue(uuid.NewString())
		}
		for _, way := range []struct {
			name string
			list func(context.Context, string) ([]job.Job, error)
			of   string
		}{{"listed", q.Listed, "tenant"}, {"live", q.Live, "tenant"}, {"whole", q.LiveOf, "caller"}} {
			b.Run(kind+"/"+way.name, func(b *testing.B) {
				_, err := way.list(b.Context(), way.of) // the first listing reads all
				require.NoError(b, err)
				var m0, m1 runtime.MemStats
				begin, server := processorTime(), serverTime(b, db)
				runtime.ReadMemStats(&m0)
				for b.Loop() {
					require.Len(b, must(way.list(b.Context(), way.of)), 10_000)
				}
				runtime.ReadMemStats(&m1)
				n := float64(b.N)
				b.ReportMetric((processorTime()-begin)*1e3/n, "cpu-ms/op")
				b.ReportMetric((serverTime(b, db)-server)*1e3/n, "redis-ms/op")
				b.ReportMetric(float64(m1.TotalAlloc-m0.TotalAlloc)/(1<<20)/n, "alloc-MiB/op")
				b.ReportMetric(float64(m1.Mallocs-m0.Mallocs)/n, "allocs/op")
			})
		}
	}
}

// processorTime returns the processor time of this process in seconds.
func processorTime() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

var cpuLine = regexp.MustCompile(`used_cpu_(?:user|sys):([0-9.]+)`)

// serverTime returns the processor time of a redis-server in seconds; 0 if it is in this process.
func serverTime(b *testing.B, db *redis.DB) (seconds float64) {
	b.Helper()
	if db.Embedded() {
		return 0
	}
	text := must(db.Client().Info(b.Context(), "cpu").Result())
	for _, match := range cpuLine.FindAllStringSubmatch(text, -1) {
		n := must(strconv.ParseFloat(match[1], 64))
		seconds += n
	}
	return seconds
}
