package gossip

import (
	"math"
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
	got, err := decodeMeta(data)
	require.NoError(t, err)
	require.Empty(t, got.Version, "what is optional gives way")
	require.Equal(t, largest.Name, got.Name)

	usual := meta{Role: RoleHub, Name: "h", Boot: 5, Version: "v1.2.3"}
	got, err = decodeMeta(usual.encode())
	require.NoError(t, err)
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
