package queue_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/queue"
)

// Hubs share what they measure, the last runs of each pair, and the pairs that were run
// last.
func TestDurations(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		require.NoError(t, b.KeepMeasured(ctx, nil))
		var runs []queue.Measured
		for n := range 15 {
			runs = append(runs, queue.Measured{Pair: "a:k:gpu", Run: fmt.Sprintf("1w%d", n)})
		}
		require.NoError(t, b.KeepMeasured(ctx, runs))
		other := on(t, b.db, queue.Options{})
		got, now, err := other.Durations(ctx, 0)
		require.NoError(t, err)
		require.Positive(t, now)
		require.Equal(t, map[string]string{"a:k:gpu": "1w3 1w4 1w5 1w6 1w7 1w8 1w9 1w10 1w11 1w12 1w13 1w14"}, got)

		runs = nil
		for n := range 2000 {
			runs = append(runs, queue.Measured{Pair: fmt.Sprintf("s%d:k:gpu", n), Run: "1w1"})
		}
		require.NoError(t, b.KeepMeasured(ctx, runs))
		require.NoError(t, b.KeepMeasured(ctx, []queue.Measured{{Pair: "new:k:gpu", Run: "1c2"}}))
		got, _, err = other.Durations(ctx, now)
		require.NoError(t, err)
		require.Len(t, got, 2000, "bounded")
		require.Equal(t, "1c2", strings.TrimSpace(got["new:k:gpu"]))
		_, kept := got["a:k:gpu"]
		require.False(t, kept, "the oldest goes first")
		got, _, err = other.Durations(ctx, now+1e12)
		require.NoError(t, err)
		require.Empty(t, got)
	})
}
