package apikeys

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/keyring/keyringtest"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// value is what Redis has of a key.
func value(t *testing.T, db *redis.DB, name string) string {
	t.Helper()
	return must.Get(db.Client().HGet(t.Context(), db.Key("g", "apikeys"), name).Result())(t)
}

// put is what somebody does who can write to Redis.
func put(t *testing.T, db *redis.DB, name, value string) {
	t.Helper()
	require.NoError(t, db.Client().HSet(t.Context(), db.Key("g", "apikeys"), name, value).Err())
	touch(t, db, t.Name()+name+value)
}

// touch makes hubs read the keys again.
func touch(t *testing.T, db *redis.DB, version string) {
	t.Helper()
	require.NoError(t, db.Client().Set(t.Context(), db.Key("g", "apikeys", "version"), version, 0).Err())
}

// gives is finds at a hub that has just looked.
func gives(t *testing.T, k *Keys, secret, name string, want error) {
	t.Helper()
	require.NoError(t, k.look(t.Context()))
	finds(t, k, secret, name, want)
}

// unsigned is a key as versions before the signatures stored it.
func unsigned(name, secret, scope string) string {
	return `0 {"name":"` + name + `","tenant":"` + name + `","scopes":["` + scope + `"],"hash":"` + hashOf(secret).String() + `","created":1,"expires":0}`
}

// Whoever can write to Redis can make no key, and change none.
func TestForgedKeys(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		store := keyringtest.NewStore()
		k := New(db, keyringtest.Open(t, store))
		_, ada := add(t, k, Wanted{Name: "ada", Scopes: []Scope{Read}, Life: time.Hour})
		_, root := add(t, k, Wanted{Name: "root", Scopes: []Scope{Admin}})
		mine := newSecret()

		put(t, db, "mallory", unsigned("mallory", mine, "admin"))
		gives(t, k, mine, "", ErrUnknown)
		good := value(t, db, "root")
		mark := good[strings.Index(good, `,"mark"`):]
		put(t, db, "mallory", strings.TrimSuffix(unsigned("mallory", mine, "admin"), "}")+mark)
		gives(t, k, mine, "", ErrUnknown)
		put(t, db, "mallory", good) // another name of the same
		put(t, db, "root", strings.Replace(good, hashOf(root).String(), hashOf(mine).String(), 1))
		gives(t, k, mine, "", ErrUnknown)
		require.ElementsMatch(t, []string{"mallory", "root"}, []string{k.Refused()[0].Name, k.Refused()[1].Name})

		weak := value(t, db, "ada")
		for _, changed := range []string{
			strings.Replace(weak, "read", "admin", 1), strings.Replace(weak, `"tenant":"ada"`, `"tenant":"bob"`, 1),
			strings.Replace(weak, `"expires":`, `"expires":9`, 1), good,
			strings.Replace(weak, `,"mark"`, `,"scopes":["admin"],"mark"`, 1),
			weak[:len(weak)-1] + `,"scopes":["admin"]}`,
		} {
			put(t, db, "ada", changed)
			gives(t, k, ada, "", ErrUnknown)
		}
		put(t, db, "ada", weak)
		gives(t, k, ada, "ada", nil)

		// Another fleet's keys are not this one's, and what is refused can be revoked.
		other := New(db, keyringtest.New(t))
		gives(t, other, ada, "", ErrUnknown)
		require.True(t, must.Get(k.Revoke(t.Context(), "mallory"))(t))
		_, again := add(t, k, Wanted{Name: "mallory"})
		gives(t, k, again, "mallory", nil)
	})
}

// A key that was revoked stays so, even if its record is put back, at a hub that has not
// heard of it as well as after a restart.
func TestRevokedKeyIsPutBack(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		store := keyringtest.NewStore()
		one, two := New(db, keyringtest.Open(t, store)), New(db, keyringtest.Open(t, store))
		_, secret := add(t, one, Wanted{Name: "ada", Scopes: []Scope{Admin}})
		_, other := add(t, one, Wanted{Name: "bob"})
		gives(t, two, other, "bob", nil)
		gives(t, two, secret, "ada", nil)
		old, version := value(t, db, "ada"), two.known.Load().version
		must.Get(one.Revoke(t.Context(), "ada"))(t)

		// The other hub is to believe that nothing has happened.
		put(t, db, "ada", old)
		touch(t, db, version)
		require.NoError(t, two.records.Refresh(t.Context())) // which the ring does by itself
		gives(t, two, secret, "", ErrUnknown)
		for _, hub := range []*Keys{one, two, New(db, keyringtest.Open(t, store))} {
			put(t, db, "ada", old)
			gives(t, hub, secret, "", ErrUnknown)
			gives(t, hub, other, "bob", nil)
		}

		// A hub that cannot ask the storage takes in nothing new.
		_, late := add(t, one, Wanted{Name: "late"})
		store.SetAway(true)
		gives(t, two, late, "", ErrUnknown)
		gives(t, two, other, "bob", nil)
		store.SetAway(false)
		gives(t, two, late, "late", nil)
	})
}

// The keys of the last version go on, and nobody can add to them after that.
func TestKeysOfTheLastVersion(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		store := keyringtest.OldStore(t)
		secret, mine := newSecret(), newSecret()
		put(t, db, "ada", unsigned("ada", secret, "read"))
		put(t, db, "broken", "0 {")
		one := New(db, keyringtest.Open(t, store))
		gives(t, one, secret, "", ErrUnknown)
		require.NoError(t, one.Adopt(t.Context()))
		require.NoError(t, one.read(t.Context(), true))
		gives(t, one, secret, "ada", nil)
		last, _, err := decode(strings.TrimPrefix(value(t, db, "ada"), "0 "))
		require.NoError(t, err, "the last version can read it")
		require.Equal(t, "ada", last.Tenant)

		put(t, db, "mallory", unsigned("mallory", mine, "admin"))
		two := New(db, keyringtest.Open(t, store))
		require.NoError(t, two.Adopt(t.Context()))
		gives(t, two, mine, "", ErrUnknown)
		gives(t, two, secret, "ada", nil)
		require.Len(t, two.Refused(), 2)
	})
}
