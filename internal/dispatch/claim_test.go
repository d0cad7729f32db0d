package dispatch

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// while repeats some work until done returns.
func while(work func(), done func()) {
	stop := make(chan struct{})
	var busy sync.WaitGroup
	busy.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				work()
			}
		}
	})
	done()
	close(stop)
	busy.Wait()
}

// A lease is renewed and taken back while its run goes on. Each step of the run
// must see a complete lease. The race detector makes this test fail.
func TestLeaseChangesDuringARun(t *testing.T) {
	t.Parallel()
	b := newDispatching(t, 1)
	b.instances[0].on("POST /prompt", refuse) // the longest path: refused, then reported as a run
	for _, state := range []job.State{job.Failed, job.Done} {
		key := b.submit(picture)
		while(func() {
			if r := b.followed(key); r != nil {
				b.adopt(t.Context(), queue.Orphan{Run: r.lease()}, Expired)
			}
		}, func() { b.reaches(key, state) })
		b.instances[0].on("POST /prompt", nil)
	}
}

// The owner of the job that an instance runs can be asked for at any time, even
// while the instance is being given the job.
func TestWhoseJobRunsIsAskedMeanwhile(t *testing.T) {
	t.Parallel()
	b := newDispatching(t, 1)
	while(func() {
		b.Running(job.DefaultTenant, "client")
		b.WarmFor(job.DefaultTenant, "client")
	}, func() {
		for range 3 {
			b.reaches(b.submit(picture), job.Done)
		}
	})
	require.Len(t, b.WarmFor(job.DefaultTenant, "client"), 1)
	require.Empty(t, b.WarmFor(job.DefaultTenant, "other"))
}
