package queue_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// Pages put together are the whole listing, whatever their size.
func TestPages(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		var jobs []job.Job
		for n := range 6 {
			jobs = append(jobs, b.enqueue(fmt.Sprint("normal-", n)))
		}
		b.enqueue("bulk", inBand(job.Bulk))
		b.enqueue("now", inBand(job.Interactive))
		run := b.claim(jobs[1], "gpu").Run
		b.claim(jobs[4], "other gpu")
		yes := true
		must(b.Steer(ctx, jobs[2].Key, queue.Steering{Paused: &yes}))
		for _, tenant := range []string{"tenant", ""} {
			all := must(b.Live(ctx, tenant))
			require.Len(t, all, 8)
			for size := 1; size <= 9; size++ {
				var paged, waiting []job.Job
				for from := 0; from < 9; from += size {
					page, before, err := b.LivePage(ctx, tenant, from, size)
					require.NoError(t, err)
					ahead := 0
					for _, j := range all[:min(from, len(all))] {
						if j.State == job.Queued && !j.Paused {
							ahead++
						}
					}
					if len(page) > 0 {
						require.Equal(t, ahead, before, "%q from %d", tenant, from)
					}
					paged = append(paged, page...)
					more := must(b.WaitingPage(ctx, tenant, from, size))
					require.LessOrEqual(t, len(more), size)
					waiting = append(waiting, more...)
				}
				require.Equal(t, all, paged, "pages of %d", size)
				require.Equal(t, []string{"now", "normal-0", "normal-3", "normal-5", "bulk"}, ids(waiting), "pages of %d", size)
			}
			require.Equal(t, []string{"normal-1", "normal-4"}, ids(must(b.Held(ctx, tenant))))
		}
		for _, what := range []func() (int, error){
			func() (int, error) { jobs, _, err := b.LivePage(ctx, "other", 0, 10); return len(jobs), err },
			func() (int, error) { jobs, err := b.WaitingPage(ctx, "other", 0, 10); return len(jobs), err },
			func() (int, error) { jobs, err := b.Held(ctx, "other"); return len(jobs), err },
		} {
			require.Zero(t, must(what()), "of another tenant")
		}
		before := must(b.Ends(ctx))
		require.NoError(t, b.Finish(ctx, run, done("{}")))
		require.Equal(t, before+1, must(b.Ends(ctx)))
	})
}
