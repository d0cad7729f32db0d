package keyring_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

const record = `{"tenant":"ada","scopes":["read"]}`

func sign(t *testing.T, r *keyring.Records, place, record string) string {
	t.Helper()
	return string(must.Get(r.Sign(place, []byte(record)))(t))
}

// verifies asserts whether a record is taken for the hub's own.
func verifies(t *testing.T, r *keyring.Records, place, signed, record string, want error) {
	t.Helper()
	got, _, err := r.Verify(t.Context(), place, []byte(signed))
	require.ErrorIs(t, err, want)
	require.Equal(t, record, string(got))
}

func TestRecords(t *testing.T) {
	t.Parallel()
	m := newMemory()
	one, two := open(t, m).Records("keys"), open(t, m).Records("keys")
	for _, text := range []string{record, `{}`, `{"a":"\"mark\":\""}`, `{"mark":"mine"}`} {
		signed := sign(t, one, "ada", text)
		require.True(t, json.Valid([]byte(signed)), signed)
		verifies(t, two, "ada", signed, text, nil)
	}
	signed := sign(t, one, "ada", record)
	var read struct{ Tenant string }
	require.NoError(t, json.Unmarshal([]byte(signed), &read), "who knows no marks can read it")
	require.Equal(t, "ada", read.Tenant)

	verifies(t, two, "bob", signed, "", keyring.ErrForged)
	verifies(t, open(t, m).Records("pins"), "ada", signed, "", keyring.ErrForged)
	verifies(t, open(t, newMemory()).Records("keys"), "ada", signed, "", keyring.ErrForged)
	verifies(t, two, "ada", strings.Replace(signed, "read", "admin", 1), "", keyring.ErrForged)
	mark := signed[strings.Index(signed, `,"mark":`):]
	verifies(t, two, "ada", `{"tenant":"eve","scopes":["admin"]`+mark, "", keyring.ErrForged)
	verifies(t, two, "ada", `{"scopes":["admin"]`+mark, "", keyring.ErrForged)
	verifies(t, two, "ada", record, "", keyring.ErrUnsigned)
	verifies(t, two, "ada", "", "", keyring.ErrUnsigned)
	for n := range signed { // no byte can be changed
		b := []byte(signed)
		b[n] ^= 1
		_, _, err := two.Verify(t.Context(), "ada", b)
		require.Error(t, err, "%s", b)
	}
	_, err := one.Sign("ada", []byte(`["no object"]`))
	require.Error(t, err)
	closed := must.Get(keyring.New(options(newMemory())))(t)
	_, err = closed.Records("keys").Sign("ada", []byte(record))
	require.ErrorIs(t, err, keyring.ErrUnavailable)
}

// What was revoked stays so at all hubs and after restarts, for as long as its key is there.
func TestRevokedRecords(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		m := newMemory()
		ring := open(t, m)
		one, two := ring.Records("keys"), open(t, m).Records("keys")
		require.False(t, one.Revoked("a"))
		before := two.Revocations()
		require.NoError(t, one.Revoke(t.Context(), "a"))
		require.NoError(t, one.Revoke(t.Context(), "a"))
		require.True(t, one.Revoked("a"))
		require.False(t, one.Revoked("b"))
		require.False(t, ring.Records("pins").Revoked("a"))
		require.NoError(t, two.Refresh(t.Context()))
		require.True(t, two.Revoked("a"))
		require.NotEqual(t, before, two.Revocations())
		require.True(t, open(t, m).Records("keys").Revoked("a"))
		objects := len(m.snapshot())

		for range 3 { // keys, none of which has ever signed what was revoked, take over
			time.Sleep(keyring.Keep + 2*keyring.Spread)
			must.Get(ring.Rotate(t.Context()))(t)
			require.NoError(t, ring.Expire(t.Context(), time.Now()))
		}
		require.False(t, open(t, m).Records("keys").Revoked("a"))
		require.LessOrEqual(t, len(m.snapshot()), objects, "it is not kept for ever")

		m.change(func(m *memory) { m.away = true })
		require.ErrorIs(t, one.Revoke(t.Context(), "c"), keyring.ErrUnavailable)
		require.False(t, one.Revoked("c"))
	})
}

func TestShelf(t *testing.T) {
	t.Parallel()
	m := newMemory()
	one, two := open(t, m).Shelf("pins"), open(t, m).Shelf("pins")
	gets := func(name, want string, wantErr error) {
		t.Helper()
		got, found, err := two.Get(t.Context(), name)
		require.ErrorIs(t, err, wantErr)
		require.Equal(t, want, string(got))
		require.Equal(t, want != "", found)
	}
	gets("gpu", "", nil)
	require.NoError(t, one.Put(t.Context(), "gpu", []byte(record)))
	require.NoError(t, one.Put(t.Context(), "other", []byte(`{}`)))
	gets("gpu", record, nil)
	m.change(func(m *memory) { // a record is no other's
		var names []string
		for name := range m.objects {
			if strings.HasPrefix(name, "record-pins-") {
				names = append(names, name)
			}
		}
		require.Len(t, names, 2)
		m.objects[names[0]], m.objects[names[1]] = m.objects[names[1]], m.objects[names[0]]
	})
	gets("gpu", "", keyring.ErrForged)
	require.NoError(t, one.Put(t.Context(), "gpu", []byte(record)))
	gets("gpu", record, nil)
	require.NoError(t, one.Delete(t.Context(), "gpu"))
	require.NoError(t, one.Delete(t.Context(), "gpu"))
	gets("gpu", "", nil)
	m.change(func(m *memory) { m.away = true })
	gets("other", "", keyring.ErrUnavailable)
}

// Records outlive the key that signed them if they are signed again, those on shelves do
// by themselves.
func TestRecordsAfterRotation(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		m := newMemory()
		ring := open(t, m)
		records := ring.Records("keys")
		signed := sign(t, records, "ada", record)
		require.NoError(t, ring.Shelf("pins").Put(t.Context(), "gpu", []byte(record)))
		stale := func() bool {
			_, stale, err := records.Verify(t.Context(), "ada", []byte(signed))
			require.NoError(t, err)
			return stale
		}
		time.Sleep(time.Hour)
		must.Get(ring.Rotate(t.Context()))(t)
		require.False(t, stale(), "the new key does not sign yet")
		time.Sleep(keyring.Spread)
		require.True(t, stale())
		again := sign(t, records, "ada", record)
		time.Sleep(keyring.Keep)
		require.NoError(t, ring.Expire(t.Context(), time.Now()))
		verifies(t, records, "ada", signed, "", keyring.ErrForged)
		verifies(t, records, "ada", again, record, nil)
		got, found, err := open(t, m).Shelf("pins").Get(t.Context(), "gpu")
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, record, string(got))
	})
}

// What a version before the marks has made is signed once. A ring that is younger than the
// marks has nothing of such a version.
func TestAdopt(t *testing.T) {
	t.Parallel()
	m := newMemory()
	calls := 0
	adopt := func(result error) error {
		return open(t, m).Records("keys").Adopt(t.Context(), keyring.MarksOfKeys, func(context.Context) error {
			calls++
			return result
		})
	}
	require.NoError(t, adopt(nil))
	require.Zero(t, calls)
	older := func(left string) { // a store of an earlier version
		m.change(func(m *memory) {
			for name, body := range m.objects {
				before, _, _ := strings.Cut(body, `,"signs":`)
				m.objects[name] = before + left + "}\n"
			}
		})
	}
	older(`,"signs":true`) // which signed API keys only
	require.NoError(t, adopt(nil))
	require.Zero(t, calls)
	require.NoError(t, open(t, m).Records("machines").Adopt(t.Context(), keyring.MarksOfMachines, func(context.Context) error {
		calls += 10
		return nil
	}))
	require.Equal(t, 10, calls)
	calls = 0
	older("")
	failed := errors.New("killed")
	require.ErrorIs(t, adopt(failed), failed)
	require.NoError(t, adopt(nil))
	require.NoError(t, adopt(nil))
	require.Equal(t, 2, calls)
}

// Whatever stands in Redis, only what the hub has signed verifies.
func FuzzVerify(f *testing.F) {
	m := newMemory()
	ring, err := keyring.Open(f.Context(), options(m))
	if err != nil {
		f.Fatal(err)
	}
	records := ring.Records("keys")
	signed, err := records.Sign("ada", []byte(record))
	if err != nil {
		f.Fatal(err)
	}
	f.Add("ada", signed)
	f.Add("bob", signed)
	f.Add("ada", []byte(record))
	f.Add("ada", []byte(`"mark":"`))
	f.Add("ada", []byte(`{"mark":"AQ"}`))
	f.Fuzz(func(t *testing.T, place string, text []byte) {
		got, _, err := records.Verify(t.Context(), place, text)
		if err == nil && (place != "ada" || string(text) != string(signed) || string(got) != record) {
			t.Fatalf("%q verifies at %q", text, place)
		}
	})
}
