package queue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/usage"
)

// Each end of a job and the time of each run is billed once; a lost run is not billed.
func TestBilledJobs(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		billed := func() (sum usage.Day) {
			t.Helper()
			now := must(b.db.Now(t.Context()))
			tenant := "a"
			for _, r := range must(usage.New(b.db).Read(t.Context(), now.Add(-24*time.Hour), now.Add(24*time.Hour), &tenant)) { // two, if the day changes meanwhile
				sum.Done, sum.Failed, sum.Cancelled, sum.Time = sum.Done+r.Done, sum.Failed+r.Failed, sum.Cancelled+r.Cancelled, sum.Time+r.Time
			}
			return sum
		}
		// begun is a run that began five minutes ago.
		begun := func(j job.Job, instance string) job.Job {
			t.Helper()
			claimed := b.claim(j, instance)
			at := time.Now().Add(-5 * time.Minute).UnixMilli()
			require.NoError(t, b.db.Client().HSet(t.Context(), b.db.Key("q", "job", claimed.Key), "claimed", at).Err())
			return claimed
		}
		minutes := func(n int) {
			t.Helper()
			require.InDelta(t, time.Duration(n)*time.Minute, billed().Time, float64(time.Minute))
		}
		end := func(j job.Job, state job.State) {
			t.Helper()
			require.NoError(t, b.Finish(t.Context(), j.Run, queue.Outcome{State: state, Entry: []byte(`{}`)}))
		}
		one := begun(b.enqueue("one", from("a", "a")), "i1")
		require.NoError(t, b.Release(t.Context(), one.Run))
		minutes(5)
		end(one, job.Done)
		end(one, job.Done) // sent again
		minutes(5)
		require.EqualValues(t, 1, billed().Done)

		two := begun(b.enqueue("two", from("a", "a")), "i1")
		must(b.Requeue(t.Context(), two.Run, queue.RequeueOptions{Reason: "lost"}))
		minutes(5)
		end(begun(two, "i2"), job.Failed)
		minutes(10)
		end(begun(b.enqueue("three", from("a", "a")), "i1"), job.Cancelled)
		minutes(15)
		sum := billed()
		require.EqualValues(t, 1, sum.Done)
		require.EqualValues(t, 1, sum.Failed)
		require.EqualValues(t, 1, sum.Cancelled)
	})
}

// Where Redis's clock was set forward by five minutes during a run, the bill is what the holder
// has measured, however it says that the run has ended.
func TestBillIsWhatTheHolderHasMeasured(t *testing.T) {
	eachOf(t, queue.Options{}, map[string]func(t *testing.T, b *bench, run job.Run) error{
		"released": func(t *testing.T, b *bench, run job.Run) error { return b.Release(t.Context(), run) },
		"finished": func(t *testing.T, b *bench, run job.Run) error {
			return b.Finish(t.Context(), run, queue.Outcome{State: job.Done, Entry: []byte(`{}`)})
		},
		"followed by the next": func(t *testing.T, b *bench, run job.Run) error {
			next := b.enqueue("next", from("b", "b"))
			_, err := b.Claim(t.Context(), queue.ClaimRequest{Key: next.Key, Tenant: "b", Instance: run.Instance, Hub: run.Hub, Upstream: "next", After: run})
			return err
		},
	}, func(t *testing.T, b *bench, end func(t *testing.T, b *bench, run job.Run) error) {
		run := b.claim(b.enqueue("one", from("a", "a")), "gpu").Run
		at := time.Now().Add(-5 * time.Minute).UnixMilli()
		require.NoError(t, b.db.Client().HSet(t.Context(), b.db.Key("q", "job", run.Key), "claimed", at).Err())
		run.Took = 3 * time.Second
		require.NoError(t, end(t, b, run))
		now := must(b.db.Now(t.Context()))
		tenant := "a"
		rows := must(usage.New(b.db).Read(t.Context(), now, now, &tenant))
		require.Len(t, rows, 1)
		require.Equal(t, 3*time.Second, rows[0].Time)
	})
}
