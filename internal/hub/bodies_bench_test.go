package hub

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// resident returns the resident memory of the process in MiB, as the kernel counts
// it, or 0 where the kernel does not tell.
func resident() float64 {
	text, err := os.ReadFile("/proc/self/statm")
	var total, pages int64
	if err == nil {
		_, err = fmt.Sscan(string(text), &total, &pages)
	}
	if err != nil {
		return 0
	}
	return float64(pages) * float64(os.Getpagesize()) / (1 << 20)
}

// peak watches resident until it is stopped.
func peak() (stop func() float64) {
	var most atomic.Int64
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			most.Store(max(most.Load(), int64(resident())))
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	}()
	return func() float64 {
		close(done)
		<-over
		return float64(most.Load())
	}
}

// hostile lists bodies that are cheap to send and expensive to read.
func hostile(size int) map[string][]byte {
	fill := func(head, unit, tail string) []byte {
		return []byte(head + strings.Repeat(unit, (size-len(head)-len(tail)-2)/len(unit)) + tail)
	}
	return map[string][]byte{
		"objects": fill(`{"prompt": [`, `{},`, `{}]}`),
		"members": fill(`{"prompt": {`, `"":0,`, `"a":0}}`),
		"one":     fill(`{"prompt": {}, "x": "`, `y`, `"}`),
	}
}

func zipped(body []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(body)
	_ = w.Close()
	return b.Bytes()
}

// BenchmarkBodies posts bodies of many kinds and reports the cost of each: time
// and bytes allocated per unpacked byte, peak memory, and the memory still in use
// afterwards.
func BenchmarkBodies(b *testing.B) {
	const size = 99 << 20
	bodies := hostile(size)
	plain := work(1, 7, "none")
	bodies["workflow"] = []byte(fmt.Sprintf(`{"prompt": %s}`, plain))
	for _, name := range []string{"workflow", "objects", "members", "one", "nine"} {
		body, count := bodies[name], 1
		if name == "nine" {
			body, count = hostile(60 << 20)["one"], 9
		}
		for _, encoding := range []string{"", "gzip"} {
			b.Run(name+encoding, func(b *testing.B) {
				bench := newBench(b, 1)
				sent := body
				if encoding != "" {
					sent = zipped(body)
				}
				runtime.GC()
				before := resident()
				watch := peak()
				var m0, m1 runtime.MemStats
				runtime.ReadMemStats(&m0)
				b.ResetTimer()
				status := atomic.Int64{}
				for range b.N {
					var wait sync.WaitGroup
					for range count {
						wait.Go(func() {
							r, _ := http.NewRequestWithContext(b.Context(), http.MethodPost, bench.web.URL+"/prompt", bytes.NewReader(sent))
							if encoding != "" {
								r.Header.Set("Content-Encoding", encoding)
							}
							resp, err := http.DefaultClient.Do(r)
							if err != nil {
								b.Log(err) // the connection is closed while the client still sends
								return
							}
							resp.Body.Close()
							status.Store(int64(resp.StatusCode))
						})
					}
					wait.Wait()
				}
				b.StopTimer()
				runtime.ReadMemStats(&m1)
				per := float64(b.N*count) * float64(len(body))
				b.ReportMetric(float64(status.Load()), "status")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/per, "ns/byte")
				b.ReportMetric(float64(m1.TotalAlloc-m0.TotalAlloc)/per, "alloc-B/byte")
				b.ReportMetric(watch()-before, "peak-MiB")
				b.ReportMetric(resident()-before, "left-MiB")
			})
		}
	}
}
