package hub

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// However many ask whether the hub is ready, Redis is asked once a second.
func TestReadyIsAskedByMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		var answer error
		r := readiness{ask: func(ctx context.Context) error {
			asked.Add(1)
			select {
			case <-time.After(100 * time.Millisecond):
				return answer
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		everybody := func() (failed int64) {
			var n atomic.Int64
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() {
					if r.check(t.Context()) != nil {
						n.Add(1)
					}
				})
			}
			all.Wait()
			return n.Load()
		}
		require.Zero(t, everybody())
		require.Zero(t, everybody())
		require.EqualValues(t, 1, asked.Load())
		time.Sleep(2 * readyFor)
		answer = errors.New("MISCONF")
		require.EqualValues(t, 50, everybody())
		require.ErrorContains(t, r.check(t.Context()), "MISCONF")
		require.EqualValues(t, 2, asked.Load())

		// Who asks for all and leaves does not spoil the answer of the others.
		time.Sleep(2 * readyFor)
		answer = nil
		leaving, leave := context.WithCancel(t.Context())
		leave()
		require.NoError(t, r.check(leaving))
		require.NoError(t, r.check(t.Context()))
		require.EqualValues(t, 3, asked.Load())
	})
}

// A hub whose Redis answers but stores nothing is not ready, and says why.
func TestNotReadyWhileRedisTakesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := newBench(t, 0, func(b *bench) { b.id.Redis = server.URL() })
	b.becomesReady()
	client := redistest.Open(t, server.URL()).Client()
	require.NoError(t, client.SlaveOf(t.Context(), "127.0.0.1", "1").Err())
	eventually(t, func() bool { return b.hub.Ready(t.Context()) != nil }, time.Minute, 5*time.Millisecond)
	require.ErrorIs(t, b.hub.Ready(t.Context()), redis.ErrUnavailable)
	require.ErrorContains(t, b.hub.Ready(t.Context()), "READONLY")
	finding := b.hub.Checkup().Findings(t.Context())
	require.Contains(t, finding, Finding{
		LevelError, "redis", b.hub.Ready(t.Context()).Error(), "prompts are refused until Redis answers and stores what scripts write",
	})
	require.NoError(t, client.SlaveOf(t.Context(), "NO", "ONE").Err())
	b.becomesReady()
}
