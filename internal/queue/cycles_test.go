package queue_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// BenchmarkCycles enqueues, claims and finishes jobs of 10 kB, sixteen at once, and prints how
// many a second. COMFYHUB_BENCH_REDIS is the URL of the Redis; the default is one of its own.
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
