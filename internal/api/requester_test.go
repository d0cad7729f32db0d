package api

import (
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
