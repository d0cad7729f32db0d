package gossip

import (
	"net"
	"net/netip"
	"testing"

	"github.com/hashicorp/memberlist"
	"github.com/stretchr/testify/require"
)

// A member that listens everywhere tells others the address from which packets leave.
// Left to itself, memberlist takes a private one: of a hub with a public address that
// would be the one of Docker's bridge, or an IPv6 address that agents cannot reach.
func TestAdvertisedAddress(t *testing.T) {
	t.Parallel()
	leaves := localToward(elsewhere)
	if leaves == "" {
		t.Skip("no route leads out of here")
	}
	advertised := func(c Config) string {
		c.Key = "k"
		m := &memberlist.Config{}
		require.NoError(t, (&Gossip{config: c}).addresses(m))
		if m.AdvertiseAddr == leaves {
			require.NotZero(t, m.AdvertisePort)
			require.Equal(t, m.BindPort, m.AdvertisePort)
		}
		return m.AdvertiseAddr
	}
	for name, c := range map[string]Config{
		"a hub":               {Bind: "0.0.0.0:7946"},
		"any port":            {Bind: "0.0.0.0:0"},
		"no host":             {Bind: ":7946"},
		"others are here":     {Bind: "0.0.0.0:7946", Join: []string{"127.0.0.1:7946"}},
		"others are nowhere":  {Bind: "0.0.0.0:7946", Join: []string{"no-such-host.invalid:7946"}},
		"the second is there": {Bind: "0.0.0.0:7946", Join: []string{"127.0.0.1:7946", elsewhere + ":7946"}},
	} {
		require.Equal(t, leaves, advertised(c), name)
	}
	require.True(t, netip.MustParseAddr(leaves).Is4())
	require.Empty(t, advertised(Config{Bind: "127.0.0.1:7946"}), "memberlist takes the bound one")
	require.Equal(t, "10.1.2.3", advertised(Config{Bind: "0.0.0.0:7946", Advertise: "10.1.2.3:1"}))
	addresses, err := net.InterfaceAddrs()
	require.NoError(t, err)
	require.Condition(t, func() bool {
		for _, a := range addresses {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr().String() == leaves {
				return true
			}
		}
		return false
	}, "it is one of this machine")
}
