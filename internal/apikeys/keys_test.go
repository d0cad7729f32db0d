package apikeys

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/keyring/keyringtest"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func add(t *testing.T, k *Keys, w Wanted) (Key, string) {
	t.Helper()
	key, secret, err := k.Add(t.Context(), w)
	require.NoError(t, err)
	return key, secret
}

// finds asserts what a secret gives at a hub: the name of a key, or an error.
func finds(t *testing.T, k *Keys, secret, name string, want error) {
	t.Helper()
	access, err := k.Find(t.Context(), secret)
	require.ErrorIs(t, err, want)
	require.Equal(t, name, access.Name)
}

func TestKeys(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		store := keyringtest.NewStore()
		one, two := New(db, keyringtest.Open(t, store)), New(db, keyringtest.Open(t, store)) // two hubs
		made, secret := add(t, one, Wanted{Name: "ada", Limits: Limits{Weight: 2, Running: 4}})
		require.Equal(t, "ada", made.Tenant)
		require.Equal(t, []Scope{Submit, Read}, made.Scopes)
		require.InDelta(t, time.Now().UnixMilli(), made.Created, 60_000)
		require.Zero(t, made.Expires)
		_, other := add(t, two, Wanted{Name: "bot", Tenant: "studio b", Scopes: []Scope{Read}, Life: time.Hour})

		require.NoError(t, one.look(t.Context()))
		for _, hub := range []*Keys{one, two} {
			finds(t, hub, secret, "ada", nil)
			finds(t, hub, other, "bot", nil)
			require.Equal(t, Limits{Weight: 2, Running: 4}, hub.Limits("ada"))
			require.Zero(t, hub.Limits("studio b"))
		}
		access := must.Get(one.Find(t.Context(), other))(t)
		require.Equal(t, "studio b", access.Tenant)
		require.True(t, access.May(Read))
		require.False(t, access.May(Submit))
		require.False(t, access.May(Admin))
		require.True(t, Key{Scopes: []Scope{Admin}}.May(Submit))
		require.False(t, Key{Scopes: []Scope{Admin, Submit, Read}}.May(ActForTenants), "an operator is not everybody")
		acting, _ := add(t, one, Wanted{Name: "bridge", Scopes: []Scope{ActForTenants}})
		require.Equal(t, []Scope{Submit, Read, ActForTenants}, acting.Scopes)
		require.Equal(t, access.Created+time.Hour.Milliseconds(), access.Expires)

		_, _, err := one.Add(t.Context(), Wanted{Name: "ada"})
		require.ErrorIs(t, err, ErrExists)
		finds(t, two, secret, "ada", nil)

		// Redis must not hold what lets somebody in.
		require.NotContains(t, strings.Join(must.Get(db.Run(t.Context(), readScript, ""))(t), " "), secret[:30])
	})
}

func TestWhatIsNoKey(t *testing.T) {
	t.Parallel()
	k := New(redistest.OpenDir(t, t.TempDir()), keyringtest.New(t))
	_, secret := add(t, k, Wanted{Name: "ada"})
	swapped := []byte(secret)
	swapped[20], swapped[21] = swapped[21], swapped[20]
	if swapped[20] == swapped[21] {
		swapped[20]++
	}
	for _, text := range []string{
		"", Prefix, secret[1:], secret[:len(secret)-1], secret + "a", strings.ToUpper(secret), " " + secret, string(swapped), strings.Repeat("a", 100_000),
	} {
		finds(t, k, text, "", ErrMistyped)
	}
	finds(t, k, newSecret(), "", ErrUnknown)
	finds(t, k, secret, "ada", nil)
	require.NotEqual(t, newSecret(), newSecret())
	require.True(t, IsSecret(secret))
	require.Len(t, secret, secretLength)
}

// A key that is revoked at one hub is worth nothing at that hub when the command returns,
// and at others after their next look; what was begun with it ends.
func TestRevokedKeys(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		store := keyringtest.NewStore()
		one, two := New(db, keyringtest.Open(t, store)), New(db, keyringtest.Open(t, store))
		_, secret := add(t, one, Wanted{Name: "ada", Limits: Limits{Running: 1}})
		_, kept := add(t, one, Wanted{Name: "bob"})
		ended := map[string]chan struct{}{secret: make(chan struct{}), kept: make(chan struct{})}
		for s, end := range ended {
			access := must.Get(two.Find(t.Context(), s))(t)
			t.Cleanup(func() { access.Until(func() {})() })
			stop := access.Until(func() { close(end) })
			t.Cleanup(func() { stop() })
		}
		done := make(chan struct{})
		ctx, stop := contextOf(t)
		go func() {
			defer close(done)
			two.Follow(ctx, func() *slog.Logger { return slog.New(slog.DiscardHandler) })
		}()
		had := must.Get(one.Revoke(t.Context(), "ada"))(t)
		require.True(t, had)
		finds(t, one, secret, "", ErrUnknown)
		require.Zero(t, one.Limits("ada"))
		select {
		case <-ended[secret]:
		case <-time.After(time.Minute):
			t.Fatal("the other hub does not follow")
		}
		finds(t, two, secret, "", ErrUnknown)
		finds(t, two, kept, "bob", nil)
		select {
		case <-ended[kept]:
			t.Fatal("another key ends too")
		default:
		}
		stop()
		<-done
		had = must.Get(one.Revoke(t.Context(), "ada"))(t)
		require.False(t, had)
		_, again := add(t, one, Wanted{Name: "ada"})
		finds(t, one, secret, "", ErrUnknown)
		finds(t, one, again, "ada", nil)
	})
}

func TestKeysExpire(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		k := New(db, keyringtest.New(t))
		_, secret := add(t, k, Wanted{Name: "ada", Life: time.Hour, Limits: Limits{Waiting: 3}})
		access := must.Get(k.Find(t.Context(), secret))(t)
		ended := make(chan struct{})
		access.Until(func() { close(ended) })
		require.Equal(t, 3, k.Limits("ada").Waiting)

		later := *k.known.Load()
		later.ahead += 2 * time.Hour // Redis's clock goes on
		later.expire()
		k.known.Store(&later)
		finds(t, k, secret, "", ErrUnknown)
		require.Zero(t, k.Limits("ada"))
		<-ended
	})
}

// The name of a key that has expired can be used again.
func TestExpiredNameIsFree(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		k := New(db, keyringtest.New(t))
		_, old := add(t, k, Wanted{Name: "ada", Life: time.Millisecond})
		var secret string
		require.Eventually(t, func() bool {
			var err error
			_, secret, err = k.Add(t.Context(), Wanted{Name: "ada"})
			return err == nil
		}, 30*time.Second, time.Millisecond)
		finds(t, k, old, "", ErrUnknown)
		finds(t, k, secret, "ada", nil)
	})
}

func TestKeysAreBounded(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		k := New(db, keyringtest.New(t))
		k.most = 2
		add(t, k, Wanted{Name: "a"})
		add(t, k, Wanted{Name: "b"})
		_, _, err := k.Add(t.Context(), Wanted{Name: "c"})
		require.ErrorIs(t, err, ErrFull)
		must.Get(k.Revoke(t.Context(), "a"))(t)
		add(t, k, Wanted{Name: "c"})
	})
}

// The use of a key is written once a minute, whichever hub sees it.
func TestLastUse(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		ring := keyringtest.New(t)
		k := New(db, ring)
		_, secret := add(t, k, Wanted{Name: "ada"})
		add(t, k, Wanted{Name: "idle"})
		used := func() int64 {
			list := must.Get(New(db, ring).List(t.Context()))(t)
			require.Len(t, list, 2)
			require.Zero(t, list[1].Used)
			return list[0].Used
		}
		require.NoError(t, k.note(t.Context()))
		require.Zero(t, used())
		finds(t, k, secret, "ada", nil)
		require.NoError(t, k.note(t.Context()))
		first := used()
		require.InDelta(t, time.Now().UnixMilli(), first, 60_000)

		finds(t, k, secret, "ada", nil)
		names, _ := k.known.Load().unnoted(notedEvery)
		require.Empty(t, names, "a minute has not passed")
		k.known.Load().byName["ada"].noted.Add(-notedEvery.Milliseconds() - 1000)
		names, _ = k.known.Load().unnoted(notedEvery)
		require.Equal(t, []string{"ada"}, names)

		must.Get(k.Revoke(t.Context(), "ada"))(t)
		add(t, k, Wanted{Name: "ada"})
		require.Zero(t, used(), "a new key of the name was never used")
	})
}

// While Redis is away, a hub accepts what it knows for a few seconds and then nothing.
func TestKeysWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	k := New(redistest.Open(t, server.URL()), keyringtest.New(t))
	_, secret := add(t, k, Wanted{Name: "ada"})
	server.Kill()
	finds(t, k, secret, "ada", nil)
	old := *k.known.Load()
	old.read = old.read.Add(-trustedFor - time.Second)
	k.known.Store(&old)
	_, err := k.Find(t.Context(), secret)
	require.ErrorIs(t, err, redis.ErrUnavailable)
}

func TestKeysOutlastTheProcess(t *testing.T) {
	t.Parallel()
	ring := keyringtest.New(t)
	dir := t.TempDir()
	db := redistest.OpenDir(t, dir)
	_, gone := add(t, New(db, ring), Wanted{Name: "gone"})
	_, secret := add(t, New(db, ring), Wanted{Name: "ada"})
	must.Get(New(db, ring).Revoke(t.Context(), "gone"))(t)
	require.NoError(t, db.Close())
	k := New(redistest.OpenDir(t, dir), ring)
	finds(t, k, secret, "ada", nil)
	finds(t, k, gone, "", ErrUnknown)
}

// A key that has ended is not found, even before what is known without it is in place.
func TestEndedKeyIsNotFound(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		k := New(db, keyringtest.New(t))
		_, secret := add(t, k, Wanted{Name: "ada"})
		finds(t, k, secret, "ada", nil)
		k.known.Load().find(secret).end()
		finds(t, k, secret, "", ErrUnknown)
	})
}

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	return ctx, stop
}

func TestKeysThatCannotBe(t *testing.T) {
	type row struct {
		wanted Wanted
		want   string
	}
	beside.Cases(t, map[string]row{
		"no name":          {Wanted{}, "name: want 1 to 64"},
		"odd name":         {Wanted{Name: "a b"}, "name: want 1 to 64"},
		"long name":        {Wanted{Name: strings.Repeat("a", 65)}, "name: want 1 to 64"},
		"a secret":         {Wanted{Name: Prefix + "abc"}, "looks like the secret"},
		"the default":      {Wanted{Name: "default"}, "the hub's own name"},
		"a login's":        {Wanted{Name: "a", Tenant: "login:default"}, "the hub's own name"},
		"control":          {Wanted{Name: "a", Tenant: "a\nb"}, "without control characters"},
		"long tenant":      {Wanted{Name: "a", Tenant: strings.Repeat("a", 257)}, "at most 256 bytes"},
		"secret as tenant": {Wanted{Name: "a", Tenant: newSecret()}, "looks like the secret"},
		"no scope":         {Wanted{Name: "a", Scopes: []Scope{}}, "scope: none is given"},
		"another scope":    {Wanted{Name: "a", Scopes: []Scope{"write"}}, `scope: "write" is not one of`},
		"scope twice":      {Wanted{Name: "a", Scopes: []Scope{Read, Read}}, "given twice"},
		"weight":           {Wanted{Name: "a", Limits: Limits{Weight: 1001}}, "weight: not a number"},
		"negative":         {Wanted{Name: "a", Limits: Limits{Running: -1}}, "running: not a whole number"},
		"too many":         {Wanted{Name: "a", Limits: Limits{GPUSeconds: 1 << 40}}, "gpu_seconds: not a whole number"},
		"expired":          {Wanted{Name: "a", Life: -time.Second}, "expires: not a time"},
		"for ever":         {Wanted{Name: "a", Life: 1 << 62}, "expires: not a time"},
	}, func(t *testing.T, tc row) {
		_, err := tc.wanted.key()
		require.ErrorContains(t, err, tc.want)
	})
}

// If several keys of a tenant name a limit, the newest decides.
func TestLimitsOfSeveralKeys(t *testing.T) {
	t.Parallel()
	k := &known{}
	entryOf := func(name string, created int64, l Limits) *entry {
		return &entry{Key: Key{Name: name, Tenant: "studio", Created: created, Limits: l}}
	}
	k.byName = map[string]*entry{
		"b": entryOf("b", 2, Limits{Running: 2, Waiting: 7}),
		"a": entryOf("a", 1, Limits{Weight: 3, Running: 9}),
		"c": entryOf("c", 3, Limits{}),
	}
	k.expire()
	require.Equal(t, map[string]Limits{"studio": {Weight: 3, Running: 2, Waiting: 7}}, k.limits)
}

// Whatever is stored, only what a hub has signed lets somebody in, and a broken record
// shuts nobody out.
func FuzzDecode(f *testing.F) {
	keys := &Keys{records: keyringtest.New(f).Records("apikeys")}
	good, err := keys.sign(Key{Name: "g", Tenant: "g"}, hashOf("g"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add("a", `{"name":"a","tenant":"a","scopes":["read"],"hash":"`+strings.Repeat("ab", 32)+`"}`)
	f.Add("a", good)
	f.Add("g", good)
	f.Add("g", `0 {"name":"a","tenant":"a","hash":"ab"}`)
	f.Add("", `{`)
	f.Fuzz(func(t *testing.T, name, text string) {
		if key, _, err := decode(text); err == nil && (key.Name == "" || key.Tenant == "") {
			t.Fatal("a key without a name or a tenant")
		}
		found, err := keys.check(t.Context(), []string{name, text, "g", good}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range found.valid {
			if key.Name != "g" || key.hash != hashOf("g") {
				t.Fatalf("%q is a key", text)
			}
		}
		k := &known{}
		k.take(found.valid, nil)
		if k.byName["g"] == nil {
			t.Fatal("a good key is lost")
		}
	})
}
