package caddymodule

import (
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/stretchr/testify/require"
)

// One tenant can be without a result cache that all others have, and the other way round.
func TestResultCache(t *testing.T) {
	t.Parallel()
	a := new(App)
	text := "comfyhub {\ntenant_limits {\nresult_cache on\n}\ntenant_limits ada {\nresult_cache off\n}\ntenant_limits bob {\nresult_cache 10m\n}\ntenant_limits eve {\nwaiting 1\n}\n}"
	require.NoError(t, a.UnmarshalCaddyfile(caddyfile.NewTestDispenser(text)))
	s := a.hubSettings()
	for tenant, age := range map[string]time.Duration{"ada": -1, "bob": 10 * time.Minute, "eve": 24 * time.Hour} {
		require.Equal(t, age, s.TenantLimits.But(s.TenantLimitsOf[tenant]).ResultCache, tenant)
	}
	require.Zero(t, new(App).hubSettings().TenantLimits.ResultCache, "off by default")
}
