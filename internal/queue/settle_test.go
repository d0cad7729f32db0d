package queue_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// After a restart of Redis nobody gets a job for a moment: it may be running, and its hub has yet
// to say so.
func TestNoClaimRightAfterARestart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := on(t, redistest.Open(t, server.URL()), queue.Options{})
	require.NoError(t, b.Heal(t.Context()))
	j := b.enqueue("a")
	server.Stop()
	_, err := b.Get(t.Context(), j.Key)
	require.ErrorIs(t, err, queue.ErrUnavailable)
	server.Start()
	request := queue.ClaimRequest{Key: j.Key, Instance: "gpu", Hub: "hub/1", Upstream: uuid.NewString(), SID: "sid"}
	_, err = b.Claim(t.Context(), request)
	require.ErrorIs(t, err, queue.ErrUnavailable)
	require.Eventually(t, func() bool {
		_, err := b.Claim(t.Context(), request)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
}
