package job

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNext(t *testing.T) {
	t.Parallel()
	want := map[State]map[Event]State{
		Queued:    {Claim: Leased, Fail: Failed, Cancel: Cancelled},
		Leased:    {Start: Running, Complete: Done, Fail: Failed, Requeue: Queued, Cancel: Cancelled},
		Running:   {Start: Running, Complete: Done, Fail: Failed, Requeue: Queued, Cancel: Cancelled},
		Done:      {},
		Failed:    {},
		Cancelled: {},
	}
	for state, events := range want {
		for _, event := range []Event{Claim, Start, Complete, Fail, Requeue, Cancel} {
			next, err := Next(state, event)
			if to, ok := events[event]; ok {
				require.NoError(t, err, "%s %s", state, event)
				require.Equal(t, to, next)
				continue
			}
			var refused *TransitionError
			require.ErrorAs(t, err, &refused, "%s %s", state, event)
			require.Equal(t, state, next, "a refused event changes nothing")
		}
		require.Equal(t, len(events) == 0, state.Ended(), "only ends have no way out: %s", state)
		require.NotEqual(t, state.Live(), state.Ended())
	}
}

func TestRankPrefixOrder(t *testing.T) {
	t.Parallel()
	// Each rank runs before the next one.
	ranks := []string{
		RankPrefix(100, 5),
		RankPrefix(1, math.Inf(1)),
		RankPrefix(0, math.Inf(-1)),
		RankPrefix(0, -3),
		RankPrefix(0, -2.5),
		RankPrefix(0, 0),
		RankPrefix(0, 1e-9),
		RankPrefix(0, 7),
		RankPrefix(0, 1e300),
		RankPrefix(0, math.Inf(1)),
		RankPrefix(0, math.NaN()),
		RankPrefix(-1, -100),
		RankPrefix(-100, 0),
	}
	for i := 1; i < len(ranks); i++ {
		require.Less(t, ranks[i-1], ranks[i], "%d", i)
	}
	require.Equal(t, RankPrefix(0, 0), RankPrefix(0, math.Copysign(0, -1)))
	require.Equal(t, RankPrefix(500, 0), RankPrefix(100, 0), "priority is bounded")
}
