package queue_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// BenchmarkCycles enqueues, claims and finishes jobs of 10 kB, sixteen at once, and prints how many
// per second. COMFYHUB_BENCH_REDIS is the URL of the Redis; by default it starts its own.
func BenchmarkCycles(b *testing.B) {
	url := os.Getenv("COMFYHUB_BENCH_REDIS")
	if url == "" {
		url = redistest.Start(b).URL()
	}
	q := on(b, redistest.Open(b, url), queue.Options{MaxQueue: 1 << 20})
	prompt := []byte(`{"1": {"class_type": "CLIPTextEncode", "inputs": {"text": "` + strings.Repeat("prompt ", 1400) + `"}}}`)
	const workers = 16
	var posted, ended atomic.Int64
	var all sync.WaitGroup
	b.ResetTimer()
	for n := range workers {
		all.Go(func() {
			for posted.Add(1) <= int64(b.N) {
				_, err := q.Enqueue(b.Context(), submission(uuid.NewString(), from("t", fmt.Sprint("c", n)), func(s *queue.Submission) {
					s.Body.Prompt = prompt
				}))
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	instances := make(chan string, workers)
	for n := range workers {
		instances <- fmt.Sprint("gpu", n)
	}
	for ended.Load() < int64(b.N) && !b.Failed() {
		idle := []string{<-instances}
		for more := true; more; {
			select {
			case i := <-instances:
				idle = append(idle, i)
			default:
				more = false
			}
		}
		w := must(q.Window(b.Context(), queue.Wanted{}, 0, len(idle)))
		for _, j := range w.Jobs {
			instance := idle[0]
			idle = idle[1:]
			j := must(q.Claim(b.Context(), queue.ClaimRequest{Key: j.Key, Tenant: j.Tenant, Instance: instance, Hub: "h", Upstream: j.Key}))
			all.Go(func() {
				defer func() { instances <- instance }()
				if err := q.Finish(b.Context(), j.Run, queue.Outcome{State: job.Done, Entry: []byte(`{"x":1}`)}); err != nil {
					b.Error(err)
				}
				ended.Add(1)
			})
		}
		for _, i := range idle {
			instances <- i
		}
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
}

// BenchmarkClasses looks at 10,000 waiting jobs of eight tenants, of one class or of a thousand. It
// prints how long a look blocks Redis, and how much longer than with one class if all thousand are
// wanted, or half of them.
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

// scriptTime returns how many microseconds scripts have blocked a redis-server.
func scriptTime(tb testing.TB, db *redis.DB) (usec float64) {
	text := must(db.Client().Info(tb.Context(), "commandstats").Result())
	for _, match := range scriptUsec.FindAllStringSubmatch(text, -1) {
		n := must(strconv.ParseFloat(match[1], 64))
		usec += n
	}
	return usec
}

// BenchmarkScale gives out jobs one by one while others wait, and puts as many back. It prints how
// much longer a look and a claim take with 100,000 jobs in 1,000 tenants and 20 classes than with
// 1,000 jobs in 10 tenants.
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
	timed := func(f func()) {
		begin := time.Now()
		f()
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
			timed(func() { accepted = must(q.Enqueue(ctx, submission(uuid.NewString()))) })
			timed(func() { claimed = q.claim(accepted.Job, accepted.Job.Key) })
			timed(func() { require.NoError(b, q.Started(ctx, claimed.Run)) })
			timed(func() { require.NoError(b, q.Finish(ctx, claimed.Run, queue.Outcome{State: job.Done, Entry: entry})) })
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
