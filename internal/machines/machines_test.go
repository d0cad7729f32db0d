package machines

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/keyring/keyringtest"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestTokens(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) {
		ctx := t.Context()
		store := keyringtest.NewStore()
		one, two := New(db, keyringtest.Open(t, store)), New(db, keyringtest.Open(t, store)) // two hubs
		token := must.Get(one.Issue(ctx, "attic"))(t)
		is := func(token, want string) {
			t.Helper()
			name, ok, err := two.Find(ctx, token)
			require.NoError(t, err)
			require.Equal(t, want != "", ok)
			if ok {
				require.Equal(t, want, name)
			}
		}
		is(token, "attic")
		is(token+"x", "")
		is("cellar"+strings.TrimPrefix(token, "attic"), "")
		for _, none := range []string{"", ":", "attic", "attic:", ":" + token, strings.Repeat("a", 1000) + ":" + token} {
			is(none, "")
		}
		list := must.Get(two.List(ctx))(t)
		require.Len(t, list, 1)
		require.Equal(t, "attic", list[0].Name)
		require.False(t, list[0].Issued.IsZero())

		newer := must.Get(two.Issue(ctx, "attic"))(t)
		is(token, "")
		is(newer, "attic")
		had, err := one.Revoke(ctx, "attic")
		require.NoError(t, err)
		require.True(t, had)
		is(newer, "")
		had = must.Get(one.Revoke(ctx, "attic"))(t)
		require.False(t, had)
	})
}

func TestTokensAreBounded(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) {
		m := New(db, keyringtest.New(t))
		m.most = 1
		_, err := m.Issue(t.Context(), "a")
		require.NoError(t, err)
		_, err = m.Issue(t.Context(), "b")
		require.ErrorIs(t, err, ErrFull)
		_, err = m.Issue(t.Context(), "a")
		require.NoError(t, err, "its second one")
	})
}

// Redis must not hold what lets somebody in.
func TestTokensAreNotStored(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) {
		token := must.Get(New(db, keyringtest.New(t)).Issue(t.Context(), "attic"))(t)
		stored := must.Get(db.Run(t.Context(), readScript))(t)
		_, secret, _ := strings.Cut(token, ":")
		require.NotContains(t, strings.Join(stored, " "), secret)
	})
}
