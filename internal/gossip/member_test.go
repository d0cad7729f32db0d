package gossip

import (
	"log/slog"
	"math"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/logs/logtest"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/freeport"
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

func TestGate(t *testing.T) {
	t.Parallel()
	at := netip.MustParseAddr
	hub := &gate{keyed: true, hub: true, expects: func(a netip.Addr) bool { return netip.MustParsePrefix("192.0.2.0/24").Contains(a) }}
	agent := &gate{keyed: true}
	for _, g := range []*gate{hub, agent} {
		g.meet(at("10.0.0.5"))
		g.meet(at("::ffff:127.0.0.1"))
	}
	for text, want := range map[string]struct{ proven, hubPackets, hubConnections, agentConnections bool }{
		"10.0.0.5":               {true, true, true, true},
		"::ffff:10.0.0.5":        {true, true, true, true},
		"127.0.0.1":              {true, true, true, true},
		"192.0.2.9":              {true, true, true, true}, // of the agent it is an ordinary one
		"10.0.0.6":               {false, true, false, true},
		"fd00::5":                {false, true, false, true},
		"127.0.0.77":             {},
		"::1":                    {},
		"169.254.169.254":        {},
		"::ffff:169.254.169.254": {},
		"fe80::1":                {},
		"fe80::1%eth0":           {},
		"fd00::1%eth0":           {},
		"0.0.0.0":                {},
		"224.0.0.1":              {},
		"255.255.255.255":        {},
	} {
		require.Equal(t, want.proven, hub.proven(at(text)), text)
		require.Equal(t, want.hubPackets, hub.packets(at(text)), text)
		require.Equal(t, want.hubConnections, hub.connections(at(text)), text)
		require.Equal(t, want.agentConnections, agent.connections(at(text)), text)
		require.True(t, (&gate{}).connections(at(text)), "without a key: %s", text)
	}
}

func TestGateIsBounded(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		g := &gate{keyed: true}
		first := netip.MustParseAddr("10.0.0.0")
		a := first
		for range maxMet + 1 {
			g.meet(a)
			a = a.Next()
			time.Sleep(time.Nanosecond)
		}
		require.Len(t, g.met, maxMet)
		require.False(t, g.proven(first), "the one that has been silent for longest goes")
		require.True(t, g.proven(a.Prev()))
	})
}

// knocks counts the connections to an address of this machine.
func knocks(t *testing.T, address string) *atomic.Int64 {
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skip("only Linux has all of 127.0.0.0/8:", err)
	}
	t.Cleanup(func() { l.Close() })
	var count atomic.Int64
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			count.Add(1)
			conn.Close()
		}
	}()
	return &count
}

// A member says that it is at an address of the hub's own. Nothing is sent there, however
// often it says so, and who else is there is none the wiser.
func TestLiesAboutAddressesCallNobody(t *testing.T) {
	t.Parallel()
	var log logtest.Log
	logged := func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	hub := enter(t, RoleHub, "hub", logged)
	bind := must(freeport.Address())
	_, port, err := net.SplitHostPort(bind)
	require.NoError(t, err)
	lie := "127.0.0.77:" + port
	called := knocks(t, lie)
	enter(t, RoleAgent, "thief", func(c *Config) { c.Join, c.Bind, c.Advertise = []string{hub.bind}, bind, lie })
	enter(t, RoleAgent, "honest", joining(hub.bind))
	eventually(t, "the hub hears of it", func() bool { return strings.Count(log.String(), errUnmet.Error()+": "+lie) > 3 })
	var told fleet.Sender
	eventually(t, "what it reports counts as a word only", func() bool {
		for _, r := range hub.heard() {
			if r.Agent == "thief" {
				told = r.Sender
			}
		}
		return told.Key != ""
	})
	require.True(t, told.Unmet)
	require.Equal(t, "127.0.0.77", told.Addr.String())
	eventually(t, "the honest one is where it says", func() bool {
		for _, r := range hub.heard() {
			if r.Agent == "honest" && !r.Sender.Unmet {
				return true
			}
		}
		return false
	})
	require.NotContains(t, hub.names(), "thief")
	require.Zero(t, called.Load())
}

// Reports that come before a member's first connection are left out without a word.
func TestEarlyReports(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		g := &Gossip{unmet: map[process]time.Time{}}
		p := process{name: "a"}
		require.True(t, g.early(p))
		time.Sleep(unmetFor - 1)
		require.True(t, g.early(p))
		require.True(t, g.early(process{name: "b"}))
		time.Sleep(time.Nanosecond)
		require.False(t, g.early(p))
	})
}
