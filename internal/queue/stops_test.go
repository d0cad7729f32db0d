package queue_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// What is stopped gets no further run; what runs goes on, and nothing else is touched.
func TestStops(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		a, other := b.enqueue("a", from("a", "a")), b.enqueue("b", from("b", "b"))
		claim := func(j job.Job, instance string) error {
			_, err := b.Claim(t.Context(), queue.ClaimRequest{Key: j.Key, Tenant: j.Tenant, Instance: instance, Hub: "hub/1", Upstream: uuid.NewString()})
			return err
		}
		set := func(s queue.Stop, stop, changes bool) {
			t.Helper()
			require.Equal(t, changes, must(b.SetStop(t.Context(), s, stop)))
		}
		set(queue.StopTenant("a"), true, true)
		set(queue.StopTenant("a"), true, false)
		require.Equal(t, []string{"b"}, b.seen())
		require.ErrorIs(t, claim(a, "gpu"), queue.ErrCapped)
		set(queue.StopAll, true, true)
		require.Empty(t, b.seen())
		require.ErrorIs(t, claim(other, "gpu"), queue.ErrCapped)
		set(queue.StopInstance("gpu"), true, true)
		stops := must(b.Stops(t.Context()))
		require.Equal(t, map[queue.Stop]bool{queue.StopAll: true, queue.StopTenant("a"): true, queue.StopInstance("gpu"): true}, stops)

		set(queue.StopAll, false, true)
		require.Equal(t, []string{"b"}, b.seen())
		require.ErrorIs(t, claim(other, "gpu"), queue.ErrTaken)
		require.NoError(t, claim(other, "gpu2"))
		set(queue.StopTenant("a"), false, true)
		set(queue.StopTenant("a"), false, false)
		set(queue.StopInstance("gpu"), false, true)
		require.NoError(t, claim(a, "gpu"))
		stops = must(b.Stops(t.Context()))
		require.Empty(t, stops)
	})
}

// A deadline belongs to a drain: a new drain replaces it, and it ends with the drain.
func TestDrainDeadlines(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		left := func() map[queue.Stop]time.Duration {
			t.Helper()
			return must(b.Deadlines(t.Context()))
		}
		require.Empty(t, left())
		gpu := queue.StopInstance("gpu")
		require.NoError(t, b.Drain(t.Context(), "gpu", time.Hour))
		require.NoError(t, b.Drain(t.Context(), "other", 0))
		require.Len(t, left(), 1)
		require.Greater(t, left()[gpu], 59*time.Minute)
		require.LessOrEqual(t, left()[gpu], time.Hour)
		require.Equal(t, map[queue.Stop]bool{gpu: true, queue.StopInstance("other"): true}, must(b.Stops(t.Context())))

		require.NoError(t, b.Drain(t.Context(), "gpu", time.Millisecond))
		require.Eventually(t, func() bool { return left()[gpu] < 0 }, time.Minute, time.Millisecond)
		require.NoError(t, b.Drain(t.Context(), "gpu", 0))
		require.Empty(t, left())
		require.NoError(t, b.Drain(t.Context(), "gpu", time.Hour))
		must(b.SetStop(t.Context(), gpu, false))
		require.Empty(t, left())
	})
}
