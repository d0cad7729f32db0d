package gossip

import (
	"math"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/hashicorp/memberlist"
	"github.com/stretchr/testify/require"
)

func TestMetaFits(t *testing.T) {
	t.Parallel()
	largest := meta{Role: RoleAgent, Name: strings.Repeat("n", 64), Boot: math.MinInt64, Version: strings.Repeat("\x01", 200)}
	require.NoError(t, CheckName(largest.Name))
	largest.Protocol, largest.Addr = protocolSigned, "[ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255]:65535"
	signed := largest.fit().sign(NewIdentity())
	require.NoError(t, signed.verify())
	data := signed.encode()
	require.LessOrEqual(t, len(data), memberlist.MetaMaxSize)
	got := must(decodeMeta(data))
	require.Empty(t, got.Version, "what is optional gives way")
	require.Equal(t, largest.Name, got.Name)

	usual := meta{Role: RoleHub, Name: "h", Boot: 5, Version: "v1.2.3"}
	got = must(decodeMeta(usual.encode()))
	require.Equal(t, usual, got)
}

func FuzzDecodeMeta(f *testing.F) {
	f.Add(meta{Role: RoleHub, Name: "h", Boot: 5}.encode())
	f.Add([]byte("\x01{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := decodeMeta(data)
		if err != nil {
			return
		}
		require.Error(t, m.verify(), "nobody signs by chance")
		m = m.fit().sign(NewIdentity())
		if m.Addr = ""; len(m.Version) <= maxVersion {
			require.LessOrEqual(t, len(m.encode()), memberlist.MetaMaxSize)
		}
	})
}

func TestSplitAddress(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]struct {
		host string
		port int
	}{
		"h:1": {"h", 1}, "h": {"h", DefaultPort}, ":7": {"", 7}, "[::1]:7": {"::1", 7}, "[::1]": {"::1", DefaultPort}, "10.0.0.1": {"10.0.0.1", DefaultPort},
	} {
		host, port, err := splitAddress(in)
		require.NoError(t, err, in)
		require.Equal(t, want.host, host, in)
		require.Equal(t, want.port, port, in)
	}
	for _, bad := range []string{"h:x", "h:-1", "h:70000", "::1:5:x"} {
		_, _, err := splitAddress(bad)
		require.Error(t, err, bad)
	}
}

func TestIsLoopback(t *testing.T) {
	t.Parallel()
	for _, yes := range []string{"localhost", "127.0.0.1", "127.8.9.1", "::1", "[::1]", "::ffff:127.0.0.1"} {
		require.True(t, IsLoopback(yes), yes)
	}
	for _, no := range []string{"", "0.0.0.0", "::", "10.0.0.1", "localhost.example.com", "example.com"} {
		require.False(t, IsLoopback(no), no)
	}
}

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
	addresses := must(net.InterfaceAddrs())
	require.Condition(t, func() bool {
		for _, a := range addresses {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr().String() == leaves {
				return true
			}
		}
		return false
	}, "it is one of this machine")
}
