package state_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// What a group allows is counted there, beside the share, and settled like that: on the day
// of the question, once.
func TestCapOfAGroup(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) {
		s := leading(t, db, state.Options{})
		ask := func(id string, a state.Ask) state.Verdict {
			a.Who = "telegram:5"
			v, err := s.Requests.Create(t.Context(), id, doc{}, a)
			require.NoError(t, err)
			return v
		}
		spent := func() map[string]int64 {
			list, err := s.Usage.SpentIn(t.Context(), "telegram:5")
			require.NoError(t, err)
			return list
		}
		here := state.Ask{Price: 2, Quota: 100, Group: "g", Cap: 5}
		require.Equal(t, state.Taken, ask("elsewhere", state.Ask{Price: 50, Quota: 100}))
		require.Equal(t, state.Taken, ask("a", here))
		require.Equal(t, state.Taken, ask("b", here))
		require.Equal(t, state.OverCap, ask("c", here))
		instead := here
		instead.Instead, instead.Back, instead.BackThere = "b", 2, 2
		require.Equal(t, state.Taken, ask("c", instead), "what it replaces does not count")
		require.Equal(t, state.Taken, ask("d", state.Ask{Price: 2, Quota: 100, Group: "h", Cap: 5}), "another group")
		require.Equal(t, map[string]int64{"g": 6, "h": 2}, spent())

		end := state.End{Who: "telegram:5", Group: "g", Refund: 2, Asked: time.Now(), Command: "x", Outcome: "failed"}
		for range 2 { // the answer was lost, and its writer comes again
			_, err := s.Requests.Finish(t.Context(), "b", 1, doc{"over"}, end)
			require.NoError(t, err)
		}
		require.Equal(t, map[string]int64{"g": 4, "h": 2}, spent(), "what failed is given back, once")
		end.Asked = time.Now().Add(-24 * time.Hour)
		_, err := s.Requests.Finish(t.Context(), "c", 1, doc{"over"}, end)
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"g": 4, "h": 2}, spent(), "yesterday's is no gift today")

		// In seconds it is known at the end only.
		seconds := state.Ask{Metered: true, Group: "s", Cap: 10}
		require.Equal(t, state.Taken, ask("m", seconds))
		_, err = s.Requests.Finish(t.Context(), "m", 1, doc{"over"}, state.End{Who: "telegram:5", Group: "s", Price: 12, Asked: time.Now(), Command: "x", Outcome: "done"})
		require.NoError(t, err)
		require.Equal(t, state.OverCap, ask("n", seconds))
		require.EqualValues(t, 12, spent()["s"])
		for _, key := range db.Client().Keys(t.Context(), db.Key("spent_in", "*")).Val() {
			require.Positive(t, db.Client().PTTL(t.Context(), key).Val(), "nothing is kept for ever")
		}
	})
}
