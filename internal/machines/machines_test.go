package machines

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/keyring/keyringtest"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestTokens(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
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
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
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
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		token := must.Get(New(db, keyringtest.New(t)).Issue(t.Context(), "attic"))(t)
		stored := must.Get(db.Run(t.Context(), readScript))(t)
		_, secret, _ := strings.Cut(token, ":")
		require.NotContains(t, strings.Join(stored, " "), secret)
	})
}

const mine = "attic:MADEUPBYSOMEBODY"

// stored is what Redis has of a machine, write what somebody does who can write there.
func stored(t *testing.T, db *redis.DB, name string) string {
	t.Helper()
	text := must.Get(db.Client().HGet(t.Context(), db.Key("g", "machines"), name).Result())(t)
	return text
}

func write(t *testing.T, db *redis.DB, name, value string) {
	t.Helper()
	require.NoError(t, db.Client().HSet(t.Context(), db.Key("g", "machines"), name, value).Err())
}

func finds(t *testing.T, m *Machines, token string, want bool) {
	t.Helper()
	_, ok, err := m.Find(t.Context(), token)
	require.NoError(t, err)
	require.Equal(t, want, ok)
}

// Whoever can write to Redis can let no machine in, neither with a token that was never
// issued nor with one that was revoked.
func TestForgedTokens(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		store := keyringtest.NewStore()
		hub := func() *Machines { return New(db, keyringtest.Open(t, store)) }
		m := hub()
		token := must.Get(m.Issue(t.Context(), "attic"))(t)
		finds(t, m, token, true)
		first := stored(t, db, "attic")
		names := func() []string { names := must.Get(m.Refused(t.Context()))(t); return names }
		require.Empty(t, names())

		other := "cellar:MADEUPBYSOMEBODY"
		for name, c := range map[string]struct{ machine, value, token string }{
			"another token of a machine": {"attic", "1 " + hashOf(mine), mine},
			"a machine of one's own":     {"cellar", "1 " + hashOf(other), other},
			"another machine's record":   {"cellar", first, "cellar" + strings.TrimPrefix(token, "attic")},
		} {
			write(t, db, c.machine, c.value)
			finds(t, m, c.token, false)
			finds(t, hub(), c.token, false)
			require.Contains(t, names(), `"`+c.machine+`"`, name)
		}
		write(t, db, "attic", first)
		finds(t, m, token, true)
		list := must.Get(m.List(t.Context()))(t)
		require.Len(t, list, 1, "what nobody has issued is no machine")

		// The record is hidden while the operator makes a new token, or takes it away.
		require.NoError(t, db.Client().Del(t.Context(), db.Key("g", "machines")).Err())
		newer := must.Get(m.Issue(t.Context(), "attic"))(t)
		second := stored(t, db, "attic")
		write(t, db, "attic", first)
		finds(t, m, token, false)
		write(t, db, "attic", second)
		finds(t, m, newer, true)
		require.NoError(t, db.Client().Del(t.Context(), db.Key("g", "machines")).Err())
		had := must.Get(m.Revoke(t.Context(), "attic"))(t)
		require.True(t, had)
		for _, old := range []struct{ value, token string }{{first, token}, {second, newer}} {
			write(t, db, "attic", old.value)
			finds(t, m, old.token, false)
			finds(t, hub(), old.token, false)
		}
	})
}

// A hub that asks the storage about each token only now and then hears that one was revoked.
func TestRevokedTokenAtAnotherHub(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		store := keyringtest.NewStore()
		one, two := New(db, keyringtest.Open(t, store)), New(db, keyringtest.Open(t, store))
		token, err := one.Issue(t.Context(), "attic")
		require.NoError(t, err)
		finds(t, two, token, true)
		old := stored(t, db, "attic")
		store.SetAway(true)
		finds(t, two, token, true) // which it knows
		_, err = one.Revoke(t.Context(), "attic")
		require.Error(t, err, "the storage cannot be told")
		store.SetAway(false)
		_, err = one.Revoke(t.Context(), "attic")
		require.NoError(t, err)
		finds(t, two, token, false)
		write(t, db, "attic", old)
		two.mu.Lock()
		for name, known := range two.sure {
			known.at = known.at.Add(-sureFor - time.Second)
			two.sure[name] = known
		}
		two.mu.Unlock()
		finds(t, two, token, false)
	})
}

// The tokens of the last version go on, and nobody can add to them after that.
func TestTokensOfTheLastVersion(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		store := keyringtest.OldStore(t)
		write(t, db, "cellar", "5 "+hashOf("cellar:OLD"))
		write(t, db, "broken", "x")
		one := New(db, keyringtest.Open(t, store))
		finds(t, one, "cellar:OLD", false)
		require.NoError(t, one.Adopt(t.Context()))
		finds(t, one, "cellar:OLD", true)
		list := must.Get(one.List(t.Context()))(t)
		require.Equal(t, []Machine{{"cellar", time.UnixMilli(5)}}, list)
		require.Equal(t, "5 "+hashOf("cellar:OLD"), stored(t, db, "cellar"), "the last version can read it")

		write(t, db, "attic", "5 "+hashOf(mine))
		two := New(db, keyringtest.Open(t, store))
		require.NoError(t, two.Adopt(t.Context()))
		finds(t, two, mine, false)
		finds(t, two, "cellar:OLD", true)
	})
}
