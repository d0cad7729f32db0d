package keyring_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

const (
	secretOne = "the first secret of the operator"
	secretTwo = "the second secret of the operator"
)

// plain reports whether a key lies in the store as it is.
func plain(t *testing.T, m *memory) bool {
	t.Helper()
	found := false
	for _, body := range m.snapshot() {
		var o struct{ Key, Sealed []byte }
		require.NoError(t, json.Unmarshal([]byte(body), &o))
		require.NotEqual(t, len(o.Key) > 0, len(o.Sealed) > 0)
		found = found || len(o.Key) > 0
	}
	return found
}

func TestSecretsOfTheOperator(t *testing.T) {
	t.Parallel()
	m := newMemory()
	r := open(t, m)
	require.True(t, plain(t, m))
	sealed := seal(t, r, keyring.Links, "value")

	// A secret that is given later seals what is there.
	opens(t, open(t, m, secretOne), keyring.Links, sealed, "value")
	require.False(t, plain(t, m))

	// Nothing starts without it or with another, and nothing changes then.
	before := m.snapshot()
	for _, secrets := range [][]string{nil, {secretTwo}} {
		r, err := keyring.Open(t.Context(), options(m, secrets...))
		require.ErrorIs(t, err, keyring.ErrLocked)
		_, err = r.Sealer(keyring.Links).Seal([]byte("x"), nil)
		require.ErrorIs(t, err, keyring.ErrUnavailable)
		require.Equal(t, before, m.snapshot())
	}

	// Rotating it: old first, new first, new alone.
	opens(t, open(t, m, secretOne, secretTwo), keyring.Links, sealed, "value")
	require.Equal(t, before, m.snapshot())
	opens(t, open(t, m, secretTwo, secretOne), keyring.Links, sealed, "value")
	require.NotEqual(t, before, m.snapshot())
	r = open(t, m, secretTwo)
	opens(t, r, keyring.Links, sealed, "value")

	// The same while a hub is running, and a mistake leaves it as it was.
	require.ErrorIs(t, r.SetSecrets(t.Context(), []string{secretOne}), keyring.ErrLocked)
	must.Get(r.Rotate(t.Context()))(t)
	require.False(t, plain(t, m))
	require.NoError(t, r.SetSecrets(t.Context(), []string{secretOne, secretTwo}))
	opens(t, open(t, m, secretOne), keyring.Links, sealed, "value")

	require.ErrorContains(t, r.SetSecrets(t.Context(), []string{"short"}), "too short")
	opens(t, r, keyring.Links, sealed, "value")
}

// A key that was damaged is told and is never taken for another, and never
// replaced by a new ring.
func TestDamagedKey(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(string) string{
		"empty": func(string) string { return "" },
		"cut":   func(s string) string { return s[:len(s)/2] },
		"other": func(string) string {
			return `{"v":1,"key":"` + base64.StdEncoding.EncodeToString(make([]byte, 32)) + `"}`
		},
		"short":      func(string) string { return `{"v":1,"key":"AAAA"}` },
		"newer":      func(s string) string { return strings.Replace(s, `"v":1`, `"v":2`, 1) },
		"no key":     func(string) string { return `{"v":1}` },
		"other JSON": func(string) string { return `[]` },
	} {
		for _, secrets := range [][]string{nil, {secretOne}} {
			m := newMemory()
			var log bytes.Buffer
			o := options(m, secrets...)
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
			running := must.Get(keyring.Open(t.Context(), o))(t)
			sealed := seal(t, running, keyring.Links, "value")
			good := m.snapshot()
			for object, body := range good {
				m.objects[object] = damage(body)
				require.NotContains(t, log.String(), strings.Trim(body, "{}\n"))
			}
			bad := m.snapshot()
			_, err := keyring.Open(t.Context(), options(m, secrets...))
			require.ErrorIs(t, err, keyring.ErrCorrupt, name)
			require.Equal(t, bad, m.snapshot(), "nothing is lost")

			// A hub that runs goes on, and still learns new keys.
			opens(t, running, keyring.Links, sealed, "value")
			must.Get(running.Rotate(t.Context()))(t)
			m.objects = good
			opens(t, open(t, m, secrets...), keyring.Links, sealed, "value")
		}
	}
}

func TestStoreThatIsAway(t *testing.T) {
	t.Parallel()
	m := newMemory()
	m.away = true
	r, err := keyring.Open(t.Context(), keyring.Options{Store: m})
	require.ErrorIs(t, err, keyring.ErrUnavailable)
	_, err = r.Sealer(keyring.Links).Seal([]byte("x"), nil)
	require.ErrorIs(t, err, keyring.ErrUnavailable)
	for range 3 { // also where the store is not asked again
		_, err = r.Sealer(keyring.Links).Open(t.Context(), append([]byte{1}, make([]byte, 60)...), nil)
		require.ErrorIs(t, err, keyring.ErrUnavailable)
	}
	m.change(func(m *memory) { m.away = false })
	require.NoError(t, r.Refresh(t.Context()))
	sealed := seal(t, r, keyring.Links, "value")
	m.change(func(m *memory) { m.away = true })
	require.ErrorIs(t, r.Refresh(t.Context()), keyring.ErrUnavailable)
	opens(t, r, keyring.Links, sealed, "value")

	// An empty store is no reason for a new ring in a hub that has one.
	m.change(func(m *memory) { m.away, m.objects = false, map[string]string{} })
	require.ErrorIs(t, r.Refresh(t.Context()), keyring.ErrCorrupt)
	require.Empty(t, m.snapshot())
	opens(t, r, keyring.Links, sealed, "value")
}

// What keeps a running hub from reading its keys is logged once.
func TestFaultIsToldOnce(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		m := newMemory()
		var log bytes.Buffer
		r := must.Get(keyring.Open(t.Context(), keyring.Options{Store: m, Logger: slog.New(slog.NewTextHandler(&log, nil))}))(t)
		m.objects["1700000000-0123456789abcdef"] = "damaged"
		ctx, stop := context.WithCancel(t.Context())
		go r.Follow(ctx)
		time.Sleep(time.Hour)
		stop()
		synctest.Wait()
		require.Equal(t, 1, strings.Count(log.String(), "cannot read the hub's keys"), log.String())
	})
}

func FuzzOpen(f *testing.F) {
	m := newMemory()
	r := open(f, m)
	f.Add([]byte{1}, []byte("label"))
	f.Add(seal(f, r, keyring.Links, "value")[:30], []byte("label"))
	f.Fuzz(func(t *testing.T, sealed, label []byte) {
		_, err := r.Sealer(keyring.Links).Open(t.Context(), sealed, label)
		require.ErrorIs(t, err, keyring.ErrForged)
	})
}

// All hubs of a store have the same pairs. A new key is in use for them when it is for
// what is sealed, and the replaced ones follow it.
func TestPairs(t *testing.T) {
	t.Parallel()
	store, now := newMemory(), time.Unix(1_700_000_000, 0)
	o := keyring.Options{Store: store, Now: func() time.Time { return now }}
	ring := must.Get(keyring.New(o))(t)
	_, err := ring.Pairs(keyring.Agents)
	require.ErrorIs(t, err, keyring.ErrUnavailable)
	require.NoError(t, ring.Refresh(t.Context()))
	first := must.Get(ring.Pairs(keyring.Agents))(t)
	require.Len(t, first, 1)
	require.NotEqual(t, first, must.Get(ring.Pairs(keyring.Links))(t), "each purpose has its own")

	now = now.Add(time.Hour)
	must.Get(ring.Rotate(t.Context()))(t)
	require.Equal(t, first, must.Get(ring.Pairs(keyring.Agents))(t), "not every hub knows the new one")
	now = now.Add(keyring.Spread)
	other := must.Get(keyring.Open(t.Context(), o))(t)
	for _, r := range []*keyring.Ring{ring, other} {
		later := must.Get(r.Pairs(keyring.Agents))(t)
		require.Len(t, later, 2)
		require.Equal(t, first[0], later[1])
	}
	const most = 32
	for range most {
		now = now.Add(time.Hour)
		must.Get(ring.Rotate(t.Context()))(t)
	}
	now = now.Add(keyring.Spread)
	require.Len(t, must.Get(ring.Pairs(keyring.Agents))(t), most)
}
