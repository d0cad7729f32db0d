package lease_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/lease"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// The first calls after a failover fail on connections to the former server.
func TestHealSoonIsRepeated(t *testing.T) {
	t.Parallel()
	failures := 3
	q, err := queue.New(redistest.Open(t, redistest.Start(t).URL()), queue.Options{
		Lease: time.Hour, Logger: slog.New(slog.DiscardHandler),
		HealFirst: func(context.Context) error {
			if failures--; failures >= 0 {
				return errors.New("connection reset")
			}
			return nil
		},
	})
	require.NoError(t, err)
	defer q.Close()
	l := lease.New(lease.Config{Queue: q, Lease: func() time.Duration { return time.Hour }, Logger: slog.New(slog.DiscardHandler)})
	l.HealSoon(t.Context())
	require.Negative(t, failures)
}
