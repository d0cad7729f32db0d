//go:build unix

package state_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

type doc struct{ Text string }

func leading(t *testing.T, db *redis.DB, o state.Options) *state.Store {
	t.Helper()
	s := state.New(db, o)
	_, leads, err := s.Lead(t.Context(), "one")
	require.NoError(t, err)
	require.True(t, leads)
	return s
}

func TestEventIsHandledOnce(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		s := leading(t, db, state.Options{PerChat: 2})
		for n, want := range []bool{true, false} {
			require.Equal(t, want, must.Get(s.Inbox.Admit(t.Context(), "telegram/1", "telegram|7", doc{"a"}))(t), "time %d", n)
		}
		must.Get(s.Inbox.Admit(t.Context(), "telegram/2", "telegram|7", doc{"b"}))(t)
		_, err := s.Inbox.Admit(t.Context(), "telegram/3", "telegram|7", doc{"c"})
		require.ErrorIs(t, err, state.ErrFull, "one chat may not fill the inbox")
		_, err = s.Inbox.Admit(t.Context(), "telegram/4", "telegram|8", doc{"d"})
		require.NoError(t, err, "another chat has room of its own")

		events, last, err := s.Inbox.Pending(t.Context(), 0, 2)
		require.NoError(t, err)
		require.Equal(t, []state.Waiting{{"telegram/1", "telegram|7"}, {"telegram/2", "telegram|7"}}, events)
		var d doc
		require.NoError(t, s.Inbox.Event(t.Context(), "telegram/2", &d))
		require.Equal(t, "b", d.Text)
		require.ErrorIs(t, s.Inbox.Event(t.Context(), "telegram/9", &d), state.ErrNotFound)
		events, _, err = s.Inbox.Pending(t.Context(), last, 10)
		require.NoError(t, err)
		require.Equal(t, []state.Waiting{{"telegram/4", "telegram|8"}}, events)

		require.NoError(t, s.Inbox.Handled(t.Context(), "telegram/1"))
		require.NoError(t, s.Inbox.Handled(t.Context(), "telegram/1"), "handling again changes nothing")
		_, err = s.Inbox.Admit(t.Context(), "telegram/3", "telegram|7", doc{"c"})
		require.NoError(t, err, "there is room again")
		require.False(t, must.Get(s.Inbox.Admit(t.Context(), "telegram/1", "telegram|7", doc{"a"}))(t), "what was handled is remembered")
	})
}

func TestManyChatsTogether(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		s := leading(t, db, state.Options{Inbox: 1})
		must.Get(s.Inbox.Admit(t.Context(), "telegram/1", "telegram|7", doc{"a"}))(t)
		_, err := s.Inbox.Admit(t.Context(), "telegram/2", "telegram|8", doc{"b"})
		require.ErrorIs(t, err, state.ErrCrowded, "that is nobody's own fault")
	})
}

func TestChatsAreMetAndLeft(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		s := leading(t, db, state.Options{})
		must.Get(s.Inbox.Admit(t.Context(), "telegram/1", "telegram|private|7", doc{"a"}))(t)
		chats := must.Get(s.Chats.All(t.Context()))(t)
		require.Empty(t, chats, "who writes is not let in yet")
		for _, chat := range []string{"telegram|private|7", "telegram|group|-8"} {
			require.NoError(t, s.Chats.Meet(t.Context(), chat, "7"))
		}
		require.NoError(t, s.Chats.Leave(t.Context(), "telegram|private|7"))
		chats = must.Get(s.Chats.All(t.Context()))(t)
		require.Equal(t, []string{"telegram|group|-8"}, chats)
		user := must.Get(s.Chats.Met(t.Context(), "telegram|group|-8"))(t)
		require.Equal(t, "7", user)
		user = must.Get(s.Chats.Met(t.Context(), "telegram|private|7"))(t)
		require.Empty(t, user)
	})
}

// A chat in which nobody has written for a year gets no broadcast, and is forgotten.
func TestSilentChatsAreForgotten(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		s := leading(t, db, state.Options{})
		for chat, ago := range map[string]time.Duration{"old": 366 * 24 * time.Hour, "quiet": 364 * 24 * time.Hour} {
			require.NoError(t, s.Chats.Meet(t.Context(), chat, "7"))
			met := float64(time.Now().Add(-ago).UnixMilli())
			require.NoError(t, db.Client().ZAdd(t.Context(), db.Key("chats"), redis.Z{Score: met, Member: chat}).Err())
		}
		require.NoError(t, s.Chats.Meet(t.Context(), "new", "8"))
		require.Equal(t, []string{"quiet", "new"}, must.Get(s.Chats.All(t.Context()))(t))
		require.Empty(t, must.Get(s.Chats.Met(t.Context(), "old"))(t))
	})
}

func TestDeposedProcessChangesNothing(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		one := leading(t, db, state.Options{Lease: time.Minute})
		two := state.New(db, state.Options{Lease: time.Minute})
		_, leads, err := two.Lead(t.Context(), "two")
		require.NoError(t, err)
		require.False(t, leads, "one at a time")

		require.Equal(t, state.Taken, must.Get(one.Requests.Create(t.Context(), "r1", doc{"a"}, state.Ask{Who: "telegram:5"}))(t))
		require.NoError(t, db.Client().PExpireAt(t.Context(), db.Key("leader"), time.Now()).Err()) // as after a minute
		require.Eventually(t, func() bool {
			_, leads, err := two.Lead(t.Context(), "two")
			return err == nil && leads
		}, time.Minute, 20*time.Millisecond, "the lease ends")

		_, err = one.Requests.Save(t.Context(), "r1", 1, doc{"late"})
		require.ErrorIs(t, err, state.ErrDeposed)
		_, err = one.Requests.Create(t.Context(), "r2", doc{}, state.Ask{Who: "telegram:5"})
		require.ErrorIs(t, err, state.ErrDeposed)
		var d doc
		version := must.Get(two.Requests.Load(t.Context(), "r1", &d))(t)
		require.Equal(t, "a", d.Text)
		saved := must.Get(two.Requests.Save(t.Context(), "r1", version, doc{"b"}))(t)
		again, err := two.Requests.Save(t.Context(), "r1", version, doc{"b"})
		require.NoError(t, err, "the answer was lost, and its writer comes again")
		require.Equal(t, saved, again)
		_, err = two.Requests.Save(t.Context(), "r1", version, doc{"c"})
		require.ErrorIs(t, err, state.ErrStale)
		require.NoError(t, two.Resign(t.Context(), "two"))
		_, leads, err = one.Lead(t.Context(), "one")
		require.NoError(t, err)
		require.True(t, leads, "who resigns lets others in at once")
	})
}

// Requests that come within a millisecond have an order, too.
func TestRequestsHaveAnOrder(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		s := leading(t, db, state.Options{})
		var want []string
		for n := range 26 {
			want = append(want, string(rune('z'-n)))
			require.Equal(t, state.Taken, must.Get(s.Requests.Create(t.Context(), want[n], doc{}, state.Ask{Who: "telegram:5"}))(t))
		}
		require.Equal(t, want, must.Get(s.Requests.ActiveOf(t.Context(), "telegram:5"))(t))
	})
}

func TestSharesAndBounds(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		s := leading(t, db, state.Options{})
		ask := state.Ask{Who: "telegram:5", Price: 2, Quota: 5, Waiting: 2}
		for n, want := range []state.Verdict{state.Taken, state.Taken, state.Busy} {
			require.Equal(t, want, must.Get(s.Requests.Create(t.Context(), string(rune('a'+n)), doc{}, ask))(t), "request %d", n)
		}
		got := must.Get(s.Requests.Create(t.Context(), "a", doc{}, ask))(t)
		require.Equal(t, state.Exists, got, "a repeated message is no second request")

		end := state.End{Who: ask.Who, Asked: time.Now(), Command: "generate", Took: 3000, Outcome: "done", Done: true}
		must.Get(s.Requests.Finish(t.Context(), "a", 1, doc{}, end))(t)
		got = must.Get(s.Requests.Create(t.Context(), "d", doc{}, ask))(t)
		require.Equal(t, state.OverQuota, got)
		end.Refund, end.Took, end.Outcome, end.Done = 2, 5000, "failed", false
		version := must.Get(s.Requests.Finish(t.Context(), "b", 1, doc{}, end))(t)
		again, err := s.Requests.Finish(t.Context(), "b", 1, doc{}, end)
		require.NoError(t, err, "the answer was lost, and its writer comes again")
		require.Equal(t, version, again)
		must.Get(s.Requests.Finish(t.Context(), "b", version, doc{}, end))(t)
		require.EqualValues(t, 2, must.Get(s.Usage.Spent(t.Context(), ask.Who))(t), "what failed is given back, once")
		mean, ok := s.Usage.Mean(t.Context(), "generate")
		require.True(t, ok)
		require.Equal(t, 4*time.Second, mean)
		require.Empty(t, must.Get(s.Requests.Active(t.Context()))(t))
		days := must.Get(s.Usage.Days(t.Context(), 2))(t)
		require.Zero(t, days[0].Requests(), "yesterday")
		require.Equal(t, map[string]int64{"done": 1, "failed": 1}, days[1].Outcomes)
		require.Equal(t, map[string]int64{"generate": 2}, days[1].Commands)
		require.EqualValues(t, 1, days[1].Users)
		wait, ok := days[1].Wait(0.95)
		require.True(t, ok)
		require.InEpsilon(t, time.Second, wait, 0.2, "up to a second is told apart from more")
	})
}

// A request that an older bridge has stored belongs to its user all the same.
func TestOwnerOfOldRequests(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		s := leading(t, db, state.Options{})
		must.Get(s.Requests.Create(t.Context(), "a", doc{}, state.Ask{Who: "telegram:5"}))(t)
		require.NoError(t, db.Client().Del(t.Context(), db.Key("mine", "telegram:5")).Err())
		must.Get(s.Requests.Finish(t.Context(), "a", 1, doc{}, state.End{Who: "telegram:5", Asked: time.Now()}))(t)
		require.Equal(t, []string{"a"}, must.Get(s.Requests.Own(t.Context(), "telegram:5"))(t))
		require.Positive(t, must.Get(db.Client().PTTL(t.Context(), db.Key("mine", "telegram:5")).Result())(t))
	})
}

func TestValues(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		s := state.New(db, state.Options{})
		var d doc
		require.ErrorIs(t, s.Get(t.Context(), "settings", "5", &d), state.ErrNotFound)
		require.NoError(t, s.Put(t.Context(), "settings", "5", doc{"x"}, 0))
		require.NoError(t, s.Get(t.Context(), "settings", "5", &d))
		require.Equal(t, "x", d.Text)
		require.NoError(t, s.Put(t.Context(), "settings", "5", nil, 0))
		require.ErrorIs(t, s.Get(t.Context(), "settings", "5", &d), state.ErrNotFound)
	})
}

func TestBroadcastGoesOn(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		s := leading(t, db, state.Options{})
		for _, chat := range []string{"c1", "c2", "c3", "c4"} {
			require.NoError(t, s.Chats.Meet(t.Context(), chat, "5"))
		}
		chats, fresh, err := s.Broadcasts.Start(t.Context(), "b", doc{"news"})
		require.NoError(t, err)
		require.True(t, fresh)
		require.EqualValues(t, 4, chats)
		_, fresh, err = s.Broadcasts.Start(t.Context(), "b", doc{"news"})
		require.NoError(t, err)
		require.False(t, fresh, "the same message begins it once")

		require.NoError(t, s.Broadcasts.Mark(t.Context(), "b", "c1", state.Sending))
		require.NoError(t, s.Broadcasts.Mark(t.Context(), "b", "c1", state.Reached))
		require.NoError(t, s.Broadcasts.Mark(t.Context(), "b", "c2", state.Refused))
		require.NoError(t, s.Broadcasts.Mark(t.Context(), "b", "c3", state.Sending))

		// Another process takes over: c3 may have been told, c4 surely not.
		next := leading(t, db, state.Options{})
		require.Equal(t, []string{"b"}, must.Get(next.Broadcasts.Unfinished(t.Context()))(t))
		var said doc
		require.NoError(t, next.Broadcasts.Message(t.Context(), "b", &said))
		require.Equal(t, doc{"news"}, said)
		left := must.Get(next.Broadcasts.Left(t.Context(), "b", 10))(t)
		require.Equal(t, []string{"c4"}, left)
		require.NoError(t, next.Broadcasts.Mark(t.Context(), "b", "c4", state.Sending))
		require.NoError(t, next.Broadcasts.Mark(t.Context(), "b", "c4", state.Unsent))
		left = must.Get(next.Broadcasts.Left(t.Context(), "b", 10))(t)
		require.Equal(t, []string{"c4"}, left, "it was surely not sent")
		require.NoError(t, next.Broadcasts.Mark(t.Context(), "b", "c4", state.Reached))

		reached, chats, err := next.Broadcasts.End(t.Context(), "b")
		require.NoError(t, err)
		require.EqualValues(t, 2, reached)
		require.EqualValues(t, 4, chats)
		_, _, err = next.Broadcasts.End(t.Context(), "b")
		require.ErrorIs(t, err, state.ErrNotFound, "its end is told once")
		_, fresh, err = next.Broadcasts.Start(t.Context(), "b", doc{"news"})
		require.NoError(t, err)
		require.False(t, fresh)
		require.ErrorIs(t, next.Broadcasts.Message(t.Context(), "other", &said), state.ErrNotFound)
	})
}

func TestMeteredShare(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		s := leading(t, db, state.Options{})
		create := func(id string) state.Verdict {
			return must.Get(s.Requests.Create(t.Context(), id, doc{}, state.Ask{Who: "w", Metered: true, Quota: 10}))(t)
		}
		end := func(id string, seconds int64) {
			must.Get(s.Requests.Finish(t.Context(), id, 1, doc{}, state.End{Who: "w", Asked: time.Now(), Price: seconds}))(t)
		}
		require.Equal(t, state.Taken, create("a"))
		end("a", 9)
		require.Equal(t, state.Taken, create("b"), "a second is left")
		end("b", 1)
		require.Equal(t, state.OverQuota, create("c"), "nothing is left")
		require.EqualValues(t, 10, must.Get(s.Usage.Spent(t.Context(), "w"))(t))
	})
}
