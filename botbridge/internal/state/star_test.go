//go:build unix

package state_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestStars(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		s := leading(t, db, state.Options{})
		n := 0
		toggle := func(who, request string, picture int, words string) bool {
			n++
			starred := must.Get(s.People.Toggle(t.Context(), who, fmt.Sprint("press", n), state.Star{Request: request, Picture: picture, Command: "generate", Words: words, Message: "m"}))(t)
			return starred
		}
		of := func(who, search string) (ids []string) {
			list := must.Get(s.People.Stars(t.Context(), who, search))(t)
			for _, star := range list {
				ids = append(ids, star.ID())
			}
			return ids
		}
		require.True(t, toggle("telegram:5", "r1", 0, "A red Fox"))
		require.True(t, toggle("telegram:5", "r1", 1, "A red Fox"))
		require.True(t, toggle("telegram:6", "r1", 0, "A red Fox"))
		require.True(t, toggle("telegram:5", "r2", 0, "Зимний лес"))
		require.ElementsMatch(t, []string{"r2/0", "r1/1", "r1/0"}, of("telegram:5", ""))
		require.ElementsMatch(t, []string{"r1/1", "r1/0"}, of("telegram:5", "red fox"))
		require.Equal(t, []string{"r2/0"}, of("telegram:5", "ЛЕС"))
		require.Empty(t, of("telegram:5", "owl"))
		require.Empty(t, of("telegram:7", ""))

		// Once more: no longer; the same event again changes nothing.
		require.False(t, toggle("telegram:5", "r2", 0, ""))
		require.False(t, must.Get(s.People.Toggle(t.Context(), "telegram:5", fmt.Sprint("press", n), state.Star{Request: "r2"}))(t))
		require.Len(t, of("telegram:5", ""), 2)

		// What is forgotten is nobody's favourite.
		require.True(t, must.Get(s.Requests.Forget(t.Context(), "r1"))(t))
		require.Empty(t, of("telegram:5", ""))
		require.Empty(t, of("telegram:6", ""))

		// The oldest fall out.
		for i := range state.MaxStars + 3 {
			require.True(t, toggle("telegram:5", fmt.Sprintf("s%03d", i), 0, ""))
		}
		require.Len(t, of("telegram:5", ""), state.MaxStars)
	})
}

// The request of a favourite stays known, and one that is being made is not forgotten.
func TestStarKeepsItsRequest(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		s := leading(t, db, state.Options{Keep: time.Hour})
		must.Get(s.Requests.Create(t.Context(), "r", doc{"a"}, state.Ask{Who: "telegram:5"}))(t)
		ok := must.Get(s.Requests.Forget(t.Context(), "r"))(t)
		require.False(t, ok, "it is not over")
		left := func() time.Duration {
			return must.Get(db.Client().PTTL(t.Context(), db.Key("request", "r")).Result())(t)
		}
		must.Get(s.Requests.Finish(t.Context(), "r", 1, doc{"a"}, state.End{Who: "telegram:5"}))(t)
		require.LessOrEqual(t, left(), time.Hour)
		for i, longer := range []bool{true, false} {
			require.Equal(t, longer, must.Get(s.People.Toggle(t.Context(), "telegram:5", fmt.Sprint(i), state.Star{Request: "r"}))(t))
			require.Equal(t, longer, left() > time.Hour)
		}
		// What one no longer likes may be a favourite of another.
		for i, who := range []string{"telegram:5", "telegram:6", "telegram:6"} {
			must.Get(s.People.Toggle(t.Context(), who, fmt.Sprint("other", i), state.Star{Request: "r"}))(t)
		}
		require.Greater(t, left(), time.Hour)
		ok = must.Get(s.Requests.Forget(t.Context(), "r"))(t)
		require.True(t, ok)
		var d doc
		_, err := s.Requests.Load(t.Context(), "r", &d)
		require.ErrorIs(t, err, state.ErrNotFound)
		ok = must.Get(s.Requests.Forget(t.Context(), "r"))(t)
		require.True(t, ok, "again changes nothing")
	})
}

// A picture may be a favourite before all of its request has been shown.
func TestStarBeforeTheEnd(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		s := leading(t, db, state.Options{Keep: time.Hour})
		must.Get(s.Requests.Create(t.Context(), "r", doc{"a"}, state.Ask{Who: "telegram:5"}))(t)
		must.Get(s.People.Toggle(t.Context(), "telegram:5", "press", state.Star{Request: "r"}))(t)
		must.Get(s.Requests.Finish(t.Context(), "r", 1, doc{"a"}, state.End{Who: "telegram:5"}))(t)
		require.Greater(t, must.Get(db.Client().PTTL(t.Context(), db.Key("request", "r")).Result())(t), time.Hour)
	})
}

// What a group allows is counted there, beside the share, and settled like that: on the day
// of the question, once.
func TestCapOfAGroup(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		s := leading(t, db, state.Options{})
		ask := func(id string, a state.Ask) state.Verdict {
			a.Who = "telegram:5"
			return must.Get(s.Requests.Create(t.Context(), id, doc{}, a))(t)
		}
		spent := func() map[string]int64 { return must.Get(s.Usage.SpentIn(t.Context(), "telegram:5"))(t) }
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
			must.Get(s.Requests.Finish(t.Context(), "b", 1, doc{"over"}, end))(t)
		}
		require.Equal(t, map[string]int64{"g": 4, "h": 2}, spent(), "what failed is given back, once")
		end.Asked = time.Now().Add(-24 * time.Hour)
		must.Get(s.Requests.Finish(t.Context(), "c", 1, doc{"over"}, end))(t)
		require.Equal(t, map[string]int64{"g": 4, "h": 2}, spent(), "yesterday's is no gift today")

		// In seconds it is known at the end only.
		seconds := state.Ask{Metered: true, Group: "s", Cap: 10}
		require.Equal(t, state.Taken, ask("m", seconds))
		must.Get(s.Requests.Finish(t.Context(), "m", 1, doc{"over"}, state.End{Who: "telegram:5", Group: "s", Price: 12, Asked: time.Now(), Command: "x", Outcome: "done"}))(t)
		require.Equal(t, state.OverCap, ask("n", seconds))
		require.EqualValues(t, 12, spent()["s"])
		for _, key := range db.Client().Keys(t.Context(), db.Key("spent_in", "*")).Val() {
			require.Positive(t, db.Client().PTTL(t.Context(), key).Val(), "nothing is kept for ever")
		}
	})
}

// A payment starts its request once, and one that pays for nothing is given back.
func TestPay(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		s := leading(t, db, state.Options{})
		ctx := t.Context()
		require.NoError(t, s.People.Hold(ctx, "telegram:5", "order", doc{"order"}))
		pay := func(id, request string, record any) state.Paying {
			return must.Get(s.Payments.Pay(ctx, state.Charge{ID: id, Who: "telegram:5", Request: request, Price: 7}, "order", record))(t)
		}
		require.Equal(t, state.PaysRequest, pay("a", "r1", doc{"x"}))
		require.Equal(t, state.PaysKnown, pay("a", "r1", doc{"x"}))
		require.Equal(t, state.PaysNothing, pay("b", "r1", doc{"x"}), "it is paid for")
		require.Equal(t, state.PaysNothing, pay("c", "", nil))
		require.ErrorIs(t, s.People.Held(ctx, "order", &doc{}), state.ErrNotFound)
		require.Equal(t, []string{"r1"}, must.Get(s.Requests.ActiveOf(ctx, "telegram:5"))(t))
		var d doc
		require.EqualValues(t, 1, must.Get(s.Requests.Load(ctx, "r1", &d))(t))
		require.Equal(t, "x", d.Text)
		require.Zero(t, must.Get(s.Usage.Spent(ctx, "telegram:5"))(t), "what is paid for takes nothing of the share")

		due := func(in time.Duration) (ids []string) {
			list := must.Get(s.Payments.Refunds(ctx, time.Now().Add(in)))(t)
			for _, c := range list {
				ids = append(ids, c.ID)
			}
			return ids
		}
		settle := func(id string, to state.ChargeState, after time.Duration) state.ChargeState {
			return must.Get(s.Payments.Settle(ctx, state.Charge{ID: id, Price: 7}, to, after))(t)
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
		_, err := s.Payments.Settle(ctx, state.Charge{ID: "nobody's"}, state.Refund, 0)
		require.ErrorIs(t, err, state.ErrNotFound)
		days := must.Get(s.Usage.Days(ctx, 1))(t)
		require.EqualValues(t, 21, days[0].Paid)
		require.EqualValues(t, 7, days[0].Refunded)
		for _, key := range []string{db.Key("charge", "a"), db.Key("charges", "telegram:5")} {
			require.Greater(t, must.Get(db.Client().PTTL(ctx, key).Result())(t), 90*24*time.Hour)
		}
		require.Len(t, must.Get(s.Payments.Of(ctx, "telegram:5", 2))(t), 2)
	})
}

// Of each user only so much waits for a decision.
func TestHeldIsBounded(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		s := leading(t, db, state.Options{})
		require.NoError(t, s.People.Hold(t.Context(), "telegram:6", "other", doc{"b"}))
		for n := range 30 {
			require.NoError(t, s.People.Hold(t.Context(), "telegram:5", fmt.Sprint("id", n), doc{fmt.Sprint(n)}))
		}
		require.NoError(t, s.People.Hold(t.Context(), "telegram:5", "id29", doc{"changed"}))
		kept := 0
		for n := range 30 {
			var d doc
			if err := s.People.Held(t.Context(), fmt.Sprint("id", n), &d); err == nil {
				kept++
			} else {
				require.ErrorIs(t, err, state.ErrNotFound)
			}
		}
		require.Equal(t, 20, kept)
		var d doc
		require.NoError(t, s.People.Held(t.Context(), "id29", &d))
		require.Equal(t, "changed", d.Text)
		require.NoError(t, s.People.Release(t.Context(), "telegram:5", "id29"))
		require.ErrorIs(t, s.People.Held(t.Context(), "id29", &d), state.ErrNotFound)
		require.Len(t, must.Get(s.People.HeldOf(t.Context(), "telegram:5"))(t), 19)
		require.NoError(t, s.People.Held(t.Context(), "other", &d))
		require.Positive(t, must.Get(db.Client().PTTL(t.Context(), db.Key("v", "held", "other")).Result())(t))
	})
}

// A thing counts once, however often it is tried.
func TestCount(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		s := leading(t, db, state.Options{})
		for _, c := range []struct {
			who, thing string
			want       bool
		}{{"5", "a", true}, {"5", "a", true}, {"5", "b", true}, {"5", "c", false}, {"5", "a", true}, {"6", "c", true}} {
			require.Equal(t, c.want, must.Get(s.Usage.Count(t.Context(), "enhance", c.who, c.thing, 2))(t), "%+v", c)
		}
	})
}
