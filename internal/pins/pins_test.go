package pins

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/keyring/keyringtest"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func claim(t *testing.T, p *Pins, name, key string) string {
	t.Helper()
	owner, err := p.Claim(t.Context(), name, key)
	require.NoError(t, err)
	return owner
}

func TestTheFirstKeepsTheName(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
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
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
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

// write is what somebody does who can write to Redis.
func write(t *testing.T, db *redis.DB, name, value string) {
	t.Helper()
	require.NoError(t, db.Client().HSet(t.Context(), db.Key("g", "pins"), name, value).Err())
}

// stored is what Redis has of a name.
func stored(t *testing.T, db *redis.DB, name string) string {
	t.Helper()
	text := must.Get(db.Client().HGet(t.Context(), db.Key("g", "pins"), name).Result())(t)
	return text
}

func ms(at time.Time) string { return strconv.FormatInt(at.UnixMilli(), 10) }

// Whoever can write to Redis can take nobody's name: not by another key, by making it look
// as if nobody has it, as if its owner were long gone, or as it was once.
func TestForgedPins(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		store := keyringtest.NewStore()
		hub := func() *Pins { return New(db, keyringtest.Open(t, store)) }
		p := hub()
		for name, forge := range map[string]func(){
			"another key":       func() { write(t, db, "a", ms(time.Now())+" thief") },
			"deleted":           func() { require.NoError(t, db.Client().HDel(t.Context(), db.Key("g", "pins"), "a").Err()) },
			"all deleted":       func() { require.NoError(t, db.Client().Del(t.Context(), db.Key("g", "pins")).Err()) },
			"long gone":         func() { write(t, db, "a", "1 k1") },
			"another, for ever": func() { write(t, db, "a", "99999999999999 thief") },
			"unreadable":        func() { write(t, db, "a", "x") },
		} {
			require.Equal(t, "k1", claim(t, p, "a", "k1"), name)
			forge()
			require.Equal(t, "k1", claim(t, hub(), "a", "thief"), name)
			require.Contains(t, stored(t, db, "a"), " k1", "hubs of older versions hear of it: %s", name)
			require.Equal(t, "k1", claim(t, p, "a", "k1"), name)
			forge()
			require.Equal(t, "k1", claim(t, p, "a", "k1"), name)
		}

		// What the operator has taken away does not come back.
		old := stored(t, db, "a")
		_, err := p.Forget(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, "k2", claim(t, p, "a", "k2"))
		write(t, db, "a", old)
		require.Equal(t, "k2", claim(t, hub(), "a", "k1"))

		// Making room drops no name that is in use.
		p.most = 1
		write(t, db, "a", "1 k2")
		require.Equal(t, "k3", claim(t, p, "b", "k3"))
		require.Equal(t, "k2", claim(t, hub(), "a", "k3"))

		store.SetAway(true)
		_, err = p.Claim(t.Context(), "c", "k1")
		require.Error(t, err, "nobody can tell whose it is")
		_, err = p.Forget(t.Context(), "a")
		require.Error(t, err)
	})
}

// The oldest come first, whatever their names are and whatever Redis says; those from before
// times were written down are the oldest.
func TestKnownByAge(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		store := keyringtest.OldStore(t)
		write(t, db, "from-before", ms(time.Now())+" k4") // by a hub of an older version
		p, other := New(db, keyringtest.Open(t, store)), New(db, keyringtest.Open(t, store))
		require.NoError(t, p.Adopt(t.Context()))
		names := func() (names []string) {
			known := must.Get(p.Known(t.Context()))(t)
			for _, pin := range known {
				require.Equal(t, pin.Name == "from-before", pin.Since.IsZero(), pin.Name)
				names = append(names, pin.Name)
			}
			return names
		}
		later := func() { // the clock is Redis's own, in milliseconds
			known := must.Get(p.Known(t.Context()))(t)
			last := known[len(known)-1].Since
			require.Eventually(t, func() bool { return time.Since(last) > 2*time.Millisecond }, 5*time.Second, time.Millisecond)
		}
		require.Equal(t, []string{"from-before"}, names())
		claim(t, p, "gpu1", "k1")
		later()
		claim(t, other, "000", "k2")
		later()
		claim(t, p, "!", "k3")
		require.Equal(t, []string{"from-before", "gpu1", "000", "!"}, names())
		claim(t, p, "gpu1", "k1")
		claim(t, p, "gpu1", "k2")
		claim(t, p, "from-before", "k4")
		require.Equal(t, []string{"from-before", "gpu1", "000", "!"}, names())

		// Who can write to Redis makes nobody older, and removes no older one. Nor does a hub
		// of this version take in what an older one writes later as if it had always been there.
		require.NoError(t, db.Client().Del(t.Context(), db.Key("g", "pins")).Err())
		write(t, db, "younger", "1 k9")
		require.NoError(t, other.Adopt(t.Context()))
		require.Equal(t, []string{"from-before", "gpu1", "000", "!"}, names())
		later()
		write(t, db, "younger", ms(time.Now())+" k9")
		require.Equal(t, "k9", claim(t, other, "younger", "k9"), "whom an older hub has let in is let in")
		require.Equal(t, []string{"from-before", "gpu1", "000", "!", "younger"}, names())

		// Who gets a name that was forgotten, or not used for long, is new.
		later()
		had, err := other.Forget(t.Context(), "gpu1")
		require.NoError(t, err)
		require.True(t, had)
		require.Equal(t, []string{"from-before", "000", "!", "younger"}, names())
		claim(t, p, "gpu1", "k5")
		require.Equal(t, []string{"from-before", "000", "!", "younger", "gpu1"}, names())
		p.kept = -time.Second
		require.Empty(t, names())
		away := time.Now()
		require.Eventually(t, func() bool { return time.Since(away) > 2*time.Millisecond }, 5*time.Second, time.Millisecond)
		_, err = p.Claim(t.Context(), "from-before", "k4")
		require.NoError(t, err)
		p.kept = Kept
		known := must.Get(p.Known(t.Context()))(t)
		require.Equal(t, "from-before", known[len(known)-1].Name)
	})
}

// A record that was damaged in the storage gives the name to nobody, its owner included, until
// the operator forgets it. All other names go on.
func TestDamagedPin(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		store := keyringtest.NewStore()
		p := New(db, keyringtest.Open(t, store))
		require.Equal(t, "k1", claim(t, p, "a", "k1"))
		require.Equal(t, "k2", claim(t, p, "b", "k2"))
		id := p.shelf.ID("a")
		whole, found, err := store.Read(t.Context(), id)
		require.NoError(t, err)
		require.True(t, found)
		other, _, err := store.Read(t.Context(), p.shelf.ID("b"))
		require.NoError(t, err)
		for name, damaged := range map[string]string{
			"empty": "", "cut": string(whole[:len(whole)/2]), "no record": "{}", "another name's": string(other),
			"another key": strings.Replace(string(whole), "k1", "k3", 1),
		} {
			require.NoError(t, store.Write(t.Context(), id, []byte(damaged)))
			for _, hub := range []*Pins{p, New(db, keyringtest.Open(t, store))} {
				for _, key := range []string{"k1", "k3"} {
					_, err := hub.Claim(t.Context(), "a", key)
					require.ErrorIs(t, err, keyring.ErrForged, "%s: %s", name, key)
				}
				require.Equal(t, "k2", claim(t, hub, "b", "k2"), name)
			}
			known, err := New(db, keyringtest.Open(t, store)).Known(t.Context())
			require.NoError(t, err, name)
			require.Len(t, known, 1, name)
			require.Equal(t, "b", known[0].Name, name)
			_, err = p.Forget(t.Context(), "a")
			require.NoError(t, err, name)
			require.Equal(t, "k1", claim(t, p, "a", "k1"), name)
		}
	})
}
