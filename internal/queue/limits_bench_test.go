package queue_test

import (
	"crypto/rand"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// BenchmarkAtLimits fills the embedded queue to its default limits (10,000 jobs
// waiting, 10,000 history entries of 50 kB that do not compress). It prints
// memory, jobs a second from eight goroutines, the longest time that one script
// took meanwhile, and the time of a restart.
func BenchmarkAtLimits(b *testing.B) {
	const count, size = 10_000, 50_000
	dir := b.TempDir()
	db := redistest.OpenDir(b, dir)
	q := on(b, db, queue.Options{MaxQueue: 2 * count})
	ctx := b.Context()
	entry := make([]byte, size)
	var filling sync.WaitGroup
	next := atomic.Int64{}
	for range 8 {
		filling.Go(func() {
			own := make([]byte, size)
			for next.Add(1) <= count {
				_, _ = rand.Read(own)
				j := q.enqueue(uuid.NewString())
				claimed := q.claim(j, j.Key)
				require.NoError(b, q.Finish(ctx, claimed.Run, queue.Outcome{State: job.Done, Entry: own}))
				q.enqueue(uuid.NewString())
			}
		})
	}
	filling.Wait()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	heap := float64(m.HeapAlloc)
	_, _ = rand.Read(entry)

	var longest atomic.Int64
	timed := func(f func() error) {
		begin := time.Now()
		require.NoError(b, f())
		for took := int64(time.Since(begin)); ; {
			before := longest.Load()
			if took <= before || longest.CompareAndSwap(before, took) {
				return
			}
		}
	}
	b.ResetTimer()
	b.SetParallelism(4)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			var claimed job.Job
			var accepted queue.Accepted
			timed(func() (err error) { accepted, err = q.Enqueue(ctx, submission(uuid.NewString())); return err })
			timed(func() (err error) {
				claimed, err = q.Claim(ctx, queue.ClaimRequest{Key: accepted.Job.Key, Instance: accepted.Job.Key, Hub: "h", Upstream: uuid.NewString()})
				return err
			})
			timed(func() error { return q.Started(ctx, claimed.Run) })
			timed(func() error { return q.Finish(ctx, claimed.Run, queue.Outcome{State: job.Done, Entry: entry}) })
		}
	})
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	b.ReportMetric(float64(longest.Load())/1e6, "ms-longest")
	b.ReportMetric(heap/(1<<20), "heap-MB")
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.Sys)/(1<<20), "sys-MB")
	require.NoError(b, db.Close())
	begin := time.Now()
	again := redistest.OpenDir(b, dir)
	b.ReportMetric(time.Since(begin).Seconds(), "s-restart")
	require.NoError(b, again.Close())
}
