package hub_test

import (
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// BenchmarkWatching moves a queue of 10,000 jobs, first while nobody looks and then while ten pages of the
// dashboard are open, of one user or of ten, and prints what looking costs: processor time for each second
// of ten pages, and as a part of that for the jobs. These only go through the queue here: a whole hub does
// more for each. A row that moves up has another position, so each second all that are shown change.
func BenchmarkWatching(b *testing.B) {
	const waiting, tenants, perSecond, seconds = 10_000, 10, 50, 10
	h := newBench(b, 0)
	tenant := func(n int) string { return fmt.Sprint("tenant-", n%tenants) }
	enqueue := func(n int) {
		_, err := h.hub.Queue.Enqueue(b.Context(), queue.Submission{
			Key: uuid.NewString(), ID: uuid.NewString(), Requester: job.Requester{Tenant: tenant(n), Client: "c"}, Class: "class", BodyHash: fmt.Sprint(n),
			Body: job.Body{Prompt: []byte(`{"1": {"class_type": "A", "inputs": {}}}`)},
		})
		require.NoError(b, err)
	}
	for n := range waiting {
		enqueue(n)
	}
	move := func() time.Duration {
		before, tick := worked(b), time.NewTicker(time.Second/perSecond)
		defer tick.Stop()
		for n := range perSecond * seconds {
			<-tick.C
			w := must(h.hub.Queue.Window(b.Context(), queue.Wanted{}, 0, 1))(b)
			j := must(h.hub.Queue.Claim(b.Context(), queue.ClaimRequest{Key: w.Jobs[0].Key, Tenant: w.Jobs[0].Tenant, Instance: "one", Hub: "h", Upstream: w.Jobs[0].Key}))(b)
			require.NoError(b, h.hub.Queue.Finish(b.Context(), j.Run, queue.Outcome{State: job.Done, Entry: []byte(`{"x": 1}`)}))
			enqueue(n)
		}
		return worked(b) - before
	}
	for _, users := range []int{1, tenants} {
		b.Run(fmt.Sprint("users=", users), func(b *testing.B) {
			for b.Loop() {
				alone := move()
				var read atomic.Int64
				var pages []io.Closer
				for n := range tenants {
					request := must(http.NewRequestWithContext(b.Context(), http.MethodGet, h.web.URL+"/hub/events", nil))(b)
					request.SetBasicAuth(tenant(n%users), "")
					answer := must(http.DefaultClient.Do(request))(b)
					require.Equal(b, http.StatusOK, answer.StatusCode)
					go func() {
						n, _ := io.Copy(io.Discard, answer.Body)
						read.Add(n)
					}()
					pages = append(pages, answer.Body)
				}
				watched := move()
				for _, page := range pages {
					require.NoError(b, page.Close())
				}
				b.ReportMetric(float64(read.Load())/1024/tenants/seconds, "KiB/s/page")
				b.ReportMetric(float64((watched-alone).Milliseconds())/seconds, "watch-cpu-ms/s")
				b.ReportMetric(float64(alone.Microseconds())/1000/perSecond/seconds, "queue-cpu-ms/job")
				b.ReportMetric((watched-alone).Seconds()/alone.Seconds(), "ratio")
			}
		})
	}
}

// worked is the processor time of this process.
func worked(t testing.TB) time.Duration {
	t.Helper()
	var used syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
