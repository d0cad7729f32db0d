package tenants

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/apikeys"
	"github.com/comfyhub/comfyhub/internal/config"
)

// noKeys gives no tenant anything.
type noKeys struct{}

func (noKeys) Limits(string) apikeys.Limits { return apikeys.Limits{} }

func TestDefaultTenantLimits(t *testing.T) {
	t.Parallel()
	logins := &Logins{}
	with := func(s config.Settings) *Tenants {
		s = s.WithDefaults()
		return New(func() *config.Settings { return &s }, noKeys{}, logins)
	}
	all := with(config.Settings{})
	require.Equal(t, config.TenantLimits{History: 10_000}, all.Limits("default"), "alone, they are everybody")
	require.Equal(t, 2500, all.Limits("ann").Sockets)
	require.Equal(t, 2500, all.Limits("ann").Waiting)
	require.Positive(t, all.Limits("ann").Userdata)

	logins.Note()
	require.Equal(t, all.Limits("ann"), all.Limits("default"), "beside people who log in they are one tenant")

	other := with(config.Settings{TenantLimits: config.TenantLimits{Sockets: 3, Userdata: 5}})
	for _, tenant := range []string{"default", "ann"} {
		require.Equal(t, 3, other.Limits(tenant).Sockets, "what is set holds for each")
		require.Equal(t, int64(5), other.Limits(tenant).Userdata)
	}
}
