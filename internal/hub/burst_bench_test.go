//go:build unix

package hub

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"
)

// BenchmarkFleet runs 600 trivial prompts on few and on many instances, and prints the processor
// time per prompt: of the hub, its embedded queue and the simulated instances. Any extra with many
// instances is what each event costs per instance.
func BenchmarkFleet(b *testing.B) {
	const prompts = 600
	spent := func() float64 {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e6
	}
	for _, instances := range []int{10, 120} {
		b.Run(fmt.Sprint(instances), func(b *testing.B) {
			bench := newBench(b, instances)
			color := 0
			var cpu float64
			for b.Loop() {
				before := spent()
				next := make(chan int)
				var posts sync.WaitGroup
				for range 8 {
					posts.Go(func() {
						for n := range next {
							bench.submit(picture(n), fmt.Sprint("c", n%20))
						}
					})
				}
				for range prompts {
					color++
					next <- color
				}
				close(next)
				posts.Wait()
				eventually(b, func() bool {
					live, _, _, err := bench.hub.queue.CountAll(b.Context())
					return err == nil && live == 0
				}, time.Minute, 5*time.Millisecond)
				cpu += spent() - before
			}
			b.ReportMetric(cpu/float64(b.N)/prompts, "cpu-ms/prompt")
			b.ReportMetric(b.Elapsed().Seconds()*1e3/float64(b.N)/prompts, "ms/prompt")
		})
	}
}
