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
)

func TestStars(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) {
		s := leading(t, db, state.Options{})
		n := 0
		toggle := func(who, request string, picture int, words string) bool {
			n++
			starred, err := s.People.Toggle(t.Context(), who, fmt.Sprint("press", n), state.Star{Request: request, Picture: picture, Command: "generate", Words: words, Message: "m"})
			require.NoError(t, err)
			return starred
		}
		of := func(who, search string) (ids []string) {
			list, err := s.People.Stars(t.Context(), who, search)
			require.NoError(t, err)
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
		again, err := s.People.Toggle(t.Context(), "telegram:5", fmt.Sprint("press", n), state.Star{Request: "r2"})
		require.NoError(t, err)
		require.False(t, again)
		require.Len(t, of("telegram:5", ""), 2)

		// What is forgotten is nobody's favourite.
		ok, err := s.Requests.Forget(t.Context(), "r1")
		require.NoError(t, err)
		require.True(t, ok)
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
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) {
		s := leading(t, db, state.Options{Keep: time.Hour})
		_, err := s.Requests.Create(t.Context(), "r", doc{"a"}, state.Ask{Who: "telegram:5"})
		require.NoError(t, err)
		ok, err := s.Requests.Forget(t.Context(), "r")
		require.NoError(t, err)
		require.False(t, ok, "it is not over")
		left := func() time.Duration {
			d, err := db.Client().PTTL(t.Context(), db.Key("request", "r")).Result()
			require.NoError(t, err)
			return d
		}
		_, err = s.Requests.Finish(t.Context(), "r", 1, doc{"a"}, state.End{Who: "telegram:5"})
		require.NoError(t, err)
		require.LessOrEqual(t, left(), time.Hour)
		for i, longer := range []bool{true, false} {
			starred, err := s.People.Toggle(t.Context(), "telegram:5", fmt.Sprint(i), state.Star{Request: "r"})
			require.NoError(t, err)
			require.Equal(t, longer, starred)
			require.Equal(t, longer, left() > time.Hour)
		}
		// What one no longer likes may be a favourite of another.
		for i, who := range []string{"telegram:5", "telegram:6", "telegram:6"} {
			_, err := s.People.Toggle(t.Context(), who, fmt.Sprint("other", i), state.Star{Request: "r"})
			require.NoError(t, err)
		}
		require.Greater(t, left(), time.Hour)
		ok, err = s.Requests.Forget(t.Context(), "r")
		require.NoError(t, err)
		require.True(t, ok)
		var d doc
		_, err = s.Requests.Load(t.Context(), "r", &d)
		require.ErrorIs(t, err, state.ErrNotFound)
		ok, err = s.Requests.Forget(t.Context(), "r")
		require.NoError(t, err)
		require.True(t, ok, "again changes nothing")
	})
}

// A picture may be a favourite before all of its request has been shown.
func TestStarBeforeTheEnd(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) {
		s := leading(t, db, state.Options{Keep: time.Hour})
		_, err := s.Requests.Create(t.Context(), "r", doc{"a"}, state.Ask{Who: "telegram:5"})
		require.NoError(t, err)
		_, err = s.People.Toggle(t.Context(), "telegram:5", "press", state.Star{Request: "r"})
		require.NoError(t, err)
		_, err = s.Requests.Finish(t.Context(), "r", 1, doc{"a"}, state.End{Who: "telegram:5"})
		require.NoError(t, err)
		left, err := db.Client().PTTL(t.Context(), db.Key("request", "r")).Result()
		require.NoError(t, err)
		require.Greater(t, left, time.Hour)
	})
}
