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

// A listing keeps what an earlier one has read, and misses nothing that has changed since: each
// change of a waiting job is made between two listings.
func TestListingsAfterEachChange(t *testing.T) {
	yes, no, urgent := true, false, 50
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		first, other := b.enqueue("first"), b.enqueue("other")
		var run job.Run
		steer := func(s queue.Steering) func() error {
			return func() error { _, err := b.Steer(ctx, other.Key, s); return err }
		}
		for _, step := range []struct {
			name   string
			change func() error
			want   []string
		}{
			{"nothing", func() error { return nil }, []string{"first", "other"}},
			{"a job is accepted", func() error { b.enqueue("third"); return nil }, []string{"first", "other", "third"}},
			{"of a higher band", func() error { b.enqueue("now", inBand(job.Interactive)); return nil }, []string{"now", "first", "other", "third"}},
			{"of a lower band", func() error { b.enqueue("later", inBand(job.Bulk)); return nil }, []string{"now", "first", "other", "third", "later"}},
			{"its priority", steer(queue.Steering{Priority: &urgent}), []string{"now", "other", "first", "third", "later"}},
			{"paused", steer(queue.Steering{Paused: &yes}), []string{"now", "other", "first", "third", "later"}},
			{"resumed", steer(queue.Steering{Paused: &no}), []string{"now", "other", "first", "third", "later"}},
			{"given out", func() error { run = b.claim(first, "gpu").Run; return nil }, []string{"now", "other", "first", "third", "later"}},
			{"lost", func() error {
				_, err := b.Requeue(ctx, run, queue.RequeueOptions{Reason: "gone"})
				return err
			}, []string{"now", "other", "first", "third", "later"}},
			{"cancelled", func() error { _, err := b.Cancel(ctx, other.Key); return err }, []string{"now", "first", "third", "later"}},
			{"given out and ended", func() error {
				return b.Finish(ctx, b.claim(b.get(first.Key), "gpu").Run, done("{}"))
			}, []string{"now", "third", "later"}},
		} {
			require.NoError(t, step.change(), step.name)
			listed := must(b.Listed(ctx, "tenant"))
			live := must(b.Live(ctx, "tenant"))
			require.Equal(t, step.want, ids(listed), step.name)
			require.Equal(t, step.want, ids(live), step.name)
			for n, j := range live {
				require.Equal(t, b.get(j.Key), j, step.name)
				require.Equal(t, []any{j.Rank, j.State, j.Paused}, []any{listed[n].Rank, listed[n].State, listed[n].Paused}, step.name)
			}
		}
	})
}

// A job that was given out, lost and returned between two listings is shown as it is now.
func TestListingAfterARunBetweenTwo(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		j := b.enqueue("a")
		must(b.Live(ctx, "tenant"))
		must(b.Requeue(ctx, b.claim(j, "gpu").Run, queue.RequeueOptions{Reason: "gone"}))
		live := must(b.Live(ctx, "tenant"))
		require.Equal(t, []job.Job{b.get(j.Key)}, live)
		require.Equal(t, 1, live[0].Attempts)
	})
}
