package hub

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/apikeys"
)

func keyHeader(secret string) http.Header { return http.Header{"X-Api-Key": {secret}} }

// Which of two keys counts would be a guess, and with it the tenant.
func TestTwoKeysAreRefused(t *testing.T) {
	inBench(t, benchOf(1, withKeys(api.KeysRequired)), func(t *testing.T, b *bench) {
		ada, bob := b.key(apikeys.Wanted{Name: "ada"}), b.key(apikeys.Wanted{Name: "bob"})
		const secret = "a secret of some length"
		for name, header := range map[string]http.Header{
			"a bearer":      {"X-Api-Key": {ada}, "Authorization": {"Bearer " + bob}},
			"a password":    {"X-Api-Key": {ada}, "Authorization": basic("x", bob)["Authorization"]},
			"a second line": {"X-Api-Key": {ada, bob}},
			"a third line":  {"X-Api-Key": {"abc", ada, bob}},
			"an invalid":    {"X-Api-Key": {ada}, "Authorization": {"Bearer " + ada + "x"}},
			"the secret":    {"X-Api-Key": {ada}, "Authorization": {"Bearer " + secret}},
		} {
			for _, policy := range []api.KeyPolicy{api.KeysOptional, api.KeysRequired} {
				w := b.call("GET", "/queue", "", header.Clone(), api.Visitor{Keys: policy, TenantSecret: api.NewTenantSecret(secret)})
				require.Equal(t, http.StatusBadRequest, w.Code, name)
				require.Equal(t, "several_keys", kindOfError(t, w.Body.String()), name)
				require.NotContains(t, w.Body.String(), ada[9:30], name)
			}
			w := b.call("GET", "/queue", "", header.Clone(), api.Visitor{TenantSecret: api.NewTenantSecret(secret)})
			require.Equal(t, http.StatusOK, w.Code, "%s: where keys are off they mean nothing", name)
		}
	})
}

// A secret that lets programs name tenants counts as a bearer token only.
func TestKeyHeaderIsForKeys(t *testing.T) {
	inBench(t, benchOf(1, withKeys(api.KeysRequired)), func(t *testing.T, b *bench) {
		const secret = "a secret of some length"
		v := api.Visitor{Keys: api.KeysRequired, TenantSecret: api.NewTenantSecret(secret), Named: "ada"}
		require.Equal(t, http.StatusOK, b.call("GET", "/queue", "", bearer(secret), v).Code)
		w := b.call("GET", "/queue", "", keyHeader(secret), v)
		require.Equal(t, http.StatusUnauthorized, w.Code)
		require.Equal(t, "no_api_key", kindOfError(t, w.Body.String()))
	})
}

// Where there are keys, pages that `cors` lets in may show one in either header.
func TestKeyHeaderOfPages(t *testing.T) {
	inBench(t, benchOf(1, withKeys(api.KeysRequired)), func(t *testing.T, b *bench) {
		for policy, want := range map[api.KeyPolicy]string{api.KeysOptional: "Content-Type, Authorization, X-API-Key", api.KeysOff: "Content-Type, Authorization"} {
			asks := http.Header{"Origin": {"http://ui.example"}, "Access-Control-Request-Headers": {"x-api-key"}}
			w := b.call("OPTIONS", "/queue", "", asks, api.Visitor{Keys: policy, CORS: "http://ui.example"})
			require.Equal(t, want, w.Header().Get("Access-Control-Allow-Headers"))
		}
	})
}
