package api

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// No two logins are one tenant, and none is the tenant of those without a login.
func TestTenantOf(t *testing.T) {
	t.Parallel()
	names := map[string]string{}
	for _, login := range []string{"", "ada", "default", "login:default", "login:login:default", "Default", "login"} {
		tenant := tenantOf(login)
		require.NotContains(t, names, tenant, "%q and %q", names[tenant], login)
		names[tenant] = login
	}
	require.Equal(t, "ada", tenantOf("ada"), "what is stored keeps its name")
}

// The hub's own address is what the caller wrote, or what a trusted proxy says of it.
func TestBase(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/status/x", nil)
	r.Host = "10.0.0.1:8188"
	require.Equal(t, "http://10.0.0.1:8188", RequesterOf(r, Visitor{}).Base)
	require.Equal(t, "https://hub.example", RequesterOf(r, Visitor{Host: "hub.example", Secure: true}).Base)
	a := RequesterOf(r, Visitor{Host: "hub.example", Secure: true, Prefix: "/comfyui"})
	require.Equal(t, "https://hub.example/comfyui", a.Base)
	require.Equal(t, "/comfyui", a.Prefix)
	r.Host = ""
	require.Empty(t, RequesterOf(r, Visitor{}).Base)
	require.Equal(t, "/comfyui", RequesterOf(r, Visitor{Prefix: "/comfyui"}).Base)
}
