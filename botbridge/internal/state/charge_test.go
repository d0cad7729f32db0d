//go:build unix

package state_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// A payment starts its request once, and one that pays for nothing is given back.
func TestPay(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) {
		s := leading(t, db, state.Options{})
		ctx := t.Context()
		require.NoError(t, s.People.Hold(ctx, "telegram:5", "order", doc{"order"}))
		pay := func(id, request string, record any) state.Paying {
			got, err := s.Payments.Pay(ctx, state.Charge{ID: id, Who: "telegram:5", Request: request, Price: 7}, "order", record)
			require.NoError(t, err)
			return got
		}
		require.Equal(t, state.PaysRequest, pay("a", "r1", doc{"x"}))
		require.Equal(t, state.PaysKnown, pay("a", "r1", doc{"x"}))
		require.Equal(t, state.PaysNothing, pay("b", "r1", doc{"x"}), "it is paid for")
		require.Equal(t, state.PaysNothing, pay("c", "", nil))
		require.ErrorIs(t, s.People.Held(ctx, "order", &doc{}), state.ErrNotFound)
		live, err := s.Requests.ActiveOf(ctx, "telegram:5")
		require.NoError(t, err)
		require.Equal(t, []string{"r1"}, live)
		var d doc
		version, err := s.Requests.Load(ctx, "r1", &d)
		require.NoError(t, err)
		require.EqualValues(t, 1, version)
		require.Equal(t, "x", d.Text)
		spent, err := s.Usage.Spent(ctx, "telegram:5")
		require.NoError(t, err)
		require.Zero(t, spent, "what is paid for takes nothing of the share")

		due := func(in time.Duration) (ids []string) {
			list, err := s.Payments.Refunds(ctx, time.Now().Add(in))
			require.NoError(t, err)
			for _, c := range list {
				ids = append(ids, c.ID)
			}
			return ids
		}
		settle := func(id string, to state.ChargeState, after time.Duration) state.ChargeState {
			got, err := s.Payments.Settle(ctx, state.Charge{ID: id, Price: 7}, to, after)
			require.NoError(t, err)
			return got
		}
		require.ElementsMatch(t, []string{"b", "c"}, due(time.Second))
		require.Equal(t, state.Refund, settle("b", state.Refund, time.Hour))
		require.Equal(t, []string{"c"}, due(time.Second), "the other one waits for its next try")
		require.Equal(t, state.Refund, settle("b", state.Settled, 0), "what is to be given back is")
		for range 2 {
			require.Equal(t, state.Refunded, settle("c", state.Refunded, 0))
		}
		require.Equal(t, state.Refunded, settle("c", state.Refund, 0))
		require.Equal(t, state.Settled, settle("a", state.Settled, 0))
		require.Equal(t, []string{"b"}, due(2*time.Hour))
		_, err = s.Payments.Settle(ctx, state.Charge{ID: "nobody's"}, state.Refund, 0)
		require.ErrorIs(t, err, state.ErrNotFound)
		days, err := s.Usage.Days(ctx, 1)
		require.NoError(t, err)
		require.EqualValues(t, 21, days[0].Paid)
		require.EqualValues(t, 7, days[0].Refunded)
		for _, key := range []string{db.Key("charge", "a"), db.Key("charges", "telegram:5")} {
			ttl, err := db.Client().PTTL(ctx, key).Result()
			require.NoError(t, err)
			require.Greater(t, ttl, 90*24*time.Hour)
		}
		list, err := s.Payments.Of(ctx, "telegram:5", 2)
		require.NoError(t, err)
		require.Len(t, list, 2)
	})
}
