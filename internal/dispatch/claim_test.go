package dispatch

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// while runs some work again and again until done returns.
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

// A lease is renewed and taken back while its run goes on: each step of the run
// sees a whole one. It is the race detector that makes this test fail.
func TestLeaseChangesDuringARun(t *testing.T) {
	t.Parallel()
	b := newDispatching(t, 1)
	b.instances[0].on("POST /prompt", refuse) // the longest way: refused, then told as a run
	for _, state := range []job.State{job.Failed, job.Done} {
		key := b.submit(picture)
		while(func() {
			if r := b.followed(key); r != nil {
				b.adopt(t.Context(), queue.Orphan{Run: r.lease()})
			}
		}, func() { b.reaches(key, state) })
		b.instances[0].on("POST /prompt", nil)
	}
}

// Whose job an instance runs is asked for at any time, also while it is being
// given one.
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
