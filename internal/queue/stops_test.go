package queue_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// What is stopped gets no further run; what runs goes on, and nothing else is touched.
func TestStops(t *testing.T) {
	t.Parallel()
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		a, other := b.enqueue("a", from("a", "a")), b.enqueue("b", from("b", "b"))
		claim := func(j job.Job, instance string) error {
			_, err := b.Claim(t.Context(), queue.ClaimRequest{Key: j.Key, Tenant: j.Tenant, Instance: instance, Hub: "hub/1", Upstream: uuid.NewString()})
			return err
		}
		set := func(s queue.Stop, stop, changes bool) {
			t.Helper()
			changed, err := b.SetStop(t.Context(), s, stop)
			require.NoError(t, err)
			require.Equal(t, changes, changed)
		}
		set(queue.StopTenant("a"), true, true)
		set(queue.StopTenant("a"), true, false)
		require.Equal(t, []string{"b"}, b.seen())
		require.ErrorIs(t, claim(a, "gpu"), queue.ErrCapped)
		set(queue.StopAll, true, true)
		require.Empty(t, b.seen())
		require.ErrorIs(t, claim(other, "gpu"), queue.ErrCapped)
		set(queue.StopInstance("gpu"), true, true)
		stops, err := b.Stops(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[queue.Stop]bool{queue.StopAll: true, queue.StopTenant("a"): true, queue.StopInstance("gpu"): true}, stops)

		set(queue.StopAll, false, true)
		require.Equal(t, []string{"b"}, b.seen())
		require.ErrorIs(t, claim(other, "gpu"), queue.ErrTaken)
		require.NoError(t, claim(other, "gpu2"))
		set(queue.StopTenant("a"), false, true)
		set(queue.StopTenant("a"), false, false)
		set(queue.StopInstance("gpu"), false, true)
		require.NoError(t, claim(a, "gpu"))
		stops, err = b.Stops(t.Context())
		require.NoError(t, err)
		require.Empty(t, stops)
	})
}
