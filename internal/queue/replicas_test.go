package queue_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// A master that is told to accept nothing without a replica is unavailable while it
// has none: a prompt is refused, not accepted and then lost by a failover. What was
// accepted before can still be read.
func TestAMasterWithoutItsReplicasAcceptsNothing(t *testing.T) {
	t.Parallel()
	b := on(t, redistest.Open(t, redistest.Start(t).URL()), queue.Options{})
	replicas := func(least string) {
		require.NoError(t, b.db.Client().ConfigSet(t.Context(), "min-replicas-to-write", least).Err())
	}
	first := b.enqueue("first")
	replicas("1")
	second := submission("second")
	_, err := b.Enqueue(t.Context(), second)
	require.ErrorIs(t, err, queue.ErrUnavailable)
	require.Equal(t, first.ID, b.get(first.Key).ID)
	_, err = b.Get(t.Context(), second.Key)
	require.ErrorIs(t, err, queue.ErrNotFound)
	replicas("0")
	accepted, err := b.Enqueue(t.Context(), second)
	require.NoError(t, err)
	require.False(t, accepted.Existing, "the refused call left nothing")
}
