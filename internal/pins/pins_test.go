package pins

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/leaktest"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
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
		one, two := New(db), New(db) // two hubs
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
		p := &Pins{db: db, kept: time.Hour, most: 3}
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
	db := redistest.OpenDir(t, dir)
	require.Equal(t, "k1", claim(t, New(db), "a", "k1"))
	require.NoError(t, db.Close())
	require.Equal(t, "k1", claim(t, New(redistest.OpenDir(t, dir)), "a", "k2"))
}

// The oldest come first, whatever their names are; those from before times were written
// down are the oldest.
func TestKnownByAge(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) {
		p := New(db)
		names := func() (names []string) {
			known, err := p.Known(t.Context())
			require.NoError(t, err)
			for _, pin := range known {
				require.Equal(t, pin.Name == "from-before", pin.Since.IsZero(), pin.Name)
				names = append(names, pin.Name)
			}
			return names
		}
		later := func() { // the clock is Redis's own, in milliseconds
			known, err := p.Known(t.Context())
			require.NoError(t, err)
			last := known[len(known)-1].Since
			require.Eventually(t, func() bool { return time.Since(last) > 2*time.Millisecond }, 5*time.Second, time.Millisecond)
		}
		require.Empty(t, names())
		claim(t, p, "gpu1", "k1")
		later()
		claim(t, p, "000", "k2")
		later()
		claim(t, p, "!", "k3")
		require.Equal(t, []string{"gpu1", "000", "!"}, names())
		claim(t, p, "gpu1", "k1")
		claim(t, p, "gpu1", "k2")
		require.Equal(t, []string{"gpu1", "000", "!"}, names())

		// As a hub of an older version writes it.
		before := redis.NewScript("test/before", redis.Durable, "write('HSET', key('g', 'pins'), 'from-before', int(now()) .. ' k4') return {}")
		_, err := db.Run(t.Context(), before)
		require.NoError(t, err)
		require.Equal(t, []string{"from-before", "gpu1", "000", "!"}, names())
		claim(t, p, "from-before", "k4")
		require.Equal(t, []string{"from-before", "gpu1", "000", "!"}, names())

		// Who gets a name that was forgotten, or not used for long, is new.
		later()
		_, err = p.Forget(t.Context(), "gpu1")
		require.NoError(t, err)
		require.Equal(t, []string{"from-before", "000", "!"}, names())
		claim(t, p, "gpu1", "k5")
		require.Equal(t, []string{"from-before", "000", "!", "gpu1"}, names())
		p.kept = -time.Second
		require.Empty(t, names())
		away := time.Now()
		require.Eventually(t, func() bool { return time.Since(away) > 2*time.Millisecond }, 5*time.Second, time.Millisecond)
		claim(t, p, "from-before", "k4")
		p.kept = Kept
		known, err := p.Known(t.Context())
		require.NoError(t, err)
		require.Equal(t, "from-before", known[len(known)-1].Name)
	})
}
