package apikeys

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/keyring/keyringtest"
)

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	return ctx, stop
}

func TestKeysThatCannotBe(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		wanted Wanted
		want   string
	}{
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := tc.wanted.key()
			require.ErrorContains(t, err, tc.want)
		})
	}
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
