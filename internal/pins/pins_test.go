package pins

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/keyring/keyringtest"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func claim(t *testing.T, p *Pins, name, key string) string {
	t.Helper()
	owner, err := p.Claim(t.Context(), name, key)
	require.NoError(t, err)
	return owner
}

func TestTheFirstKeepsTheName(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) {
		store := keyringtest.NewStore()
		one, two := New(db, keyringtest.Open(t, store)), New(db, keyringtest.Open(t, store)) // two hubs
		require.Equal(t, "k1", claim(t, one, "a", "k1"))
		require.Equal(t, "k1", claim(t, two, "a", "k2"), "at every hub")
		require.Equal(t, "k1", claim(t, two, "a", "k1"))
		require.Equal(t, "k2", claim(t, two, "b", "k2"))

		known, err := two.Forget(t.Context(), "a")
		require.NoError(t, err)
		require.True(t, known)
		known, err = two.Forget(t.Context(), "a")
		require.NoError(t, err)
		require.False(t, known)
		require.Equal(t, "k2", claim(t, one, "a", "k2"))
		require.Equal(t, "k2", claim(t, one, "a", "k1"))

		// Two claimants at once: one of them, the same for all.
		owners := make([]string, 10)
		var work sync.WaitGroup
		for n := range owners {
			work.Go(func() { owners[n], _ = one.Claim(t.Context(), "c", fmt.Sprint("k", n)) })
		}
		work.Wait()
		require.NotEmpty(t, owners[0])
		for _, o := range owners {
			require.Equal(t, owners[0], o)
		}
	})
}

func TestNamesExpireAndAreBounded(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) {
		p := New(db, keyringtest.New(t))
		p.kept, p.most = time.Hour, 3
		for n := range 3 {
			claim(t, p, fmt.Sprint("n", n), "k")
		}
		_, err := p.Claim(t.Context(), "more", "k")
		require.ErrorIs(t, err, ErrFull)
		require.Equal(t, "k", claim(t, p, "n1", "k"), "who is known is not concerned")

		p.kept = -time.Second // all of them have been away for longer
		require.Equal(t, "other", claim(t, p, "n1", "other"))
		require.Equal(t, "k", claim(t, p, "more", "k"), "and make room")
	})
}

func TestNamesOutlastTheProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db, store := redistest.OpenDir(t, dir), keyringtest.NewStore()
	require.Equal(t, "k1", claim(t, New(db, keyringtest.Open(t, store)), "a", "k1"))
	require.NoError(t, db.Close())
	require.Equal(t, "k1", claim(t, New(redistest.OpenDir(t, dir), keyringtest.Open(t, store)), "a", "k2"))
}
