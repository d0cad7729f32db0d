package comfy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
)

// away is a client that reads an answer and keeps only its head and size.
type away struct {
	header http.Header
	status int
	size   int64
}

func (a *away) Header() http.Header    { return a.header }
func (a *away) WriteHeader(status int) { a.status = status }
func (a *away) Write(p []byte) (int, error) {
	a.size += int64(len(p))
	return len(p), nil
}

// BenchmarkQueue asks for the queue while 10,000 prompts wait, as a page does at every
// status message: for all of it, and again with the tag of the last answer.
func BenchmarkQueue(b *testing.B) {
	const waiting = 10_000
	for _, size := range []int{1 << 10, 20 << 10} {
		room := newBench(b)
		for n := range waiting {
			var filler strings.Builder
			for k := 0; filler.Len() < size; k++ {
				fmt.Fprintf(&filler, "node %d of %d at %d, ", k, n, (n*7919+k*104729)%100_000)
			}
			room.submit(n, fmt.Sprintf(`{"extra_pnginfo": {"workflow": %q}}`, filler.String()))
		}
		tag := ""
		for _, kind := range []string{"whole", "unchanged"} {
			b.Run(fmt.Sprintf("%s/body=%d", kind, size), func(b *testing.B) {
				var m0, m1 runtime.MemStats
				var u0, u1 syscall.Rusage
				runtime.GC()
				runtime.ReadMemStats(&m0)
				_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u0)
				var size int64
				for b.Loop() {
					r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/queue", nil)
					if kind == "unchanged" {
						r.Header.Set("If-None-Match", tag)
					}
					answer := &away{header: http.Header{}, status: http.StatusOK}
					room.server.Serve(answer, r, api.Visitor{IP: "127.0.0.1"})
					require.Contains(b, []int{http.StatusOK, http.StatusNotModified}, answer.status)
					tag, size = answer.header.Get("Etag"), answer.size
				}
				_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u1)
				runtime.ReadMemStats(&m1)
				cpu := u1.Utime.Nano() + u1.Stime.Nano() - u0.Utime.Nano() - u0.Stime.Nano()
				b.ReportMetric(float64(cpu)/1e6/float64(b.N), "cpu-ms/op")
				b.ReportMetric(float64(m1.TotalAlloc-m0.TotalAlloc)/(1<<20)/float64(b.N), "alloc-MiB/op")
				b.ReportMetric(float64(size)/(1<<20), "sent-MiB")
				b.ReportMetric(resident(b), "resident-MiB")
			})
		}
	}
}

// resident returns the resident memory of the process in MiB.
func resident(b *testing.B) float64 {
	b.Helper()
	f, err := os.Open("/proc/self/statm")
	if err != nil {
		return 0
	}
	defer f.Close()
	text, _ := io.ReadAll(f)
	var total, pages int64
	_, _ = fmt.Sscan(string(text), &total, &pages)
	return float64(pages) * float64(os.Getpagesize()) / (1 << 20)
}
