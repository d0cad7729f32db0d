//go:build unix

package state_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// Of each user only so much waits for a decision.
func TestHeldIsBounded(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) {
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
		held, err := s.People.HeldOf(t.Context(), "telegram:5")
		require.NoError(t, err)
		require.Len(t, held, 19)
		require.NoError(t, s.People.Held(t.Context(), "other", &d))
		ttl, err := db.Client().PTTL(t.Context(), db.Key("v", "held", "other")).Result()
		require.NoError(t, err)
		require.Positive(t, ttl)
	})
}

// A thing counts once, however often it is tried.
func TestCount(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) {
		s := leading(t, db, state.Options{})
		for _, c := range []struct {
			who, thing string
			want       bool
		}{{"5", "a", true}, {"5", "a", true}, {"5", "b", true}, {"5", "c", false}, {"5", "a", true}, {"6", "c", true}} {
			ok, err := s.Usage.Count(t.Context(), "enhance", c.who, c.thing, 2)
			require.NoError(t, err)
			require.Equal(t, c.want, ok, "%+v", c)
		}
	})
}
