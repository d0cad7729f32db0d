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

func TestBroadcastGoesOn(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) {
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
		ids, err := next.Broadcasts.Unfinished(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"b"}, ids)
		var said doc
		require.NoError(t, next.Broadcasts.Message(t.Context(), "b", &said))
		require.Equal(t, doc{"news"}, said)
		left, err := next.Broadcasts.Left(t.Context(), "b", 10)
		require.NoError(t, err)
		require.Equal(t, []string{"c4"}, left)
		require.NoError(t, next.Broadcasts.Mark(t.Context(), "b", "c4", state.Sending))
		require.NoError(t, next.Broadcasts.Mark(t.Context(), "b", "c4", state.Unsent))
		left, err = next.Broadcasts.Left(t.Context(), "b", 10)
		require.NoError(t, err)
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
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) {
		s := leading(t, db, state.Options{})
		create := func(id string) state.Verdict {
			v, err := s.Requests.Create(t.Context(), id, doc{}, state.Ask{Who: "w", Metered: true, Quota: 10})
			require.NoError(t, err)
			return v
		}
		end := func(id string, seconds int64) {
			_, err := s.Requests.Finish(t.Context(), id, 1, doc{}, state.End{Who: "w", Asked: time.Now(), Price: seconds})
			require.NoError(t, err)
		}
		require.Equal(t, state.Taken, create("a"))
		end("a", 9)
		require.Equal(t, state.Taken, create("b"), "a second is left")
		end("b", 1)
		require.Equal(t, state.OverQuota, create("c"), "nothing is left")
		spent, err := s.Usage.Spent(t.Context(), "w")
		require.NoError(t, err)
		require.EqualValues(t, 10, spent)
	})
}
