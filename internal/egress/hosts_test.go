package egress_test

import (
	"net"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func hosts(tb testing.TB, items ...string) egress.Hosts {
	tb.Helper()
	return must.Get(egress.ParseHosts(items))(tb)
}

func TestParseHosts(t *testing.T) {
	t.Parallel()
	for _, item := range []string{
		"example.com", "EXAMPLE.com.", "*.example.com", "example.com:8443", "bücher.example", "*", "*:8443", "10.0.0.0/8", "10.1.2.3",
		"10.1.2.3:9000", "fd00::/8", "fd00::5", "[fd00::5]:9000", "::ffff:10.0.0.1",
	} {
		h, err := egress.ParseHosts([]string{item})
		require.NoError(t, err, item)
		require.False(t, h.Empty(), item)
	}
	for _, item := range []string{
		"", "https://example.com", "example.com/a", "user@example.com", "*.", ".", "*.*.example.com", "a.*.com", "ex ample.com", "a..b", "-a.com",
		"example.com:", "example.com:0", "example.com:65536", "example.com:+1", "example.com:080", "example.com:https", "10.0.0.1/8", "10.0.0.0/33",
		"127.1", "2130706433", "0x7f000001", "0177.0.0.1", "1.2.3.4.5", "[fd00::5", "fd00::5]:1", "*example.com", "a_b.com:1:2",
	} {
		_, err := egress.ParseHosts([]string{"fine.example", item})
		require.Error(t, err, item)
		require.Contains(t, err.Error(), item)
	}
	require.True(t, hosts(t).Empty())
}

func TestCheck(t *testing.T) {
	t.Parallel()
	listed := []string{"example.com", "*.cdn.example", "bücher.example", "minio.internal:9000", "10.0.0.0/8", "192.168.1.5:9000", "fd00::/8"}
	for link, allowed := range map[string]bool{
		"https://example.com/a.png?b#c":      true,
		"https://EXAMPLE.COM./a":             true,
		"https://example.com:443/":           true,
		"https://ｅｘａｍｐｌｅ.com/":               true, // full-width letters are the same name
		"https://a.cdn.example/":             true,
		"https://a.b.cdn.example/":           true,
		"https://bücher.example/":            true,
		"https://xn--bcher-kva.example/":     true,
		"https://minio.internal:9000/":       true,
		"https://10.1.2.3/":                  true,
		"https://[::ffff:10.1.2.3]/":         true,
		"https://192.168.1.5:9000/":          true,
		"https://[fd00::1]/":                 true,
		"http://example.com/":                false,
		"HTTP://example.com/":                false,
		"ftp://example.com/":                 false,
		"file:///etc/passwd":                 false,
		"https:example.com":                  false,
		"https:///a":                         false,
		"//example.com/a":                    false,
		"https://example.com:8443/":          false,
		"https://example.com:080/":           false,
		"https://cdn.example/":               false,
		"https://evilcdn.example/":           false,
		"https://a.cdn.example.evil/":        false,
		"https://example.com@evil.example/":  false,
		"https://evil.example@example.com/":  false,
		"https://example.com.evil.example/":  false,
		"https://evil.example/#example.com":  false,
		"https://evil.example/?@example.com": false,
		"https://minio.internal/":            false,
		"https://192.168.1.5/":               false,
		"https://11.1.2.3/":                  false,
		"https://[::ffff:127.0.0.1]/":        false,
		"https://[fe80::1%25eth0]/":          false,
		"https://[fd00::1%25eth0]/":          false,
		"https://[64:ff9b::10.1.2.3]/":       false,
		"https://[2002:a01:203::]/":          false,
		"https://167838211/":                 false, // 10.1.2.3 in decimal
		"https://0xa010203/":                 false,
		"https://012.1.2.3/":                 false,
		"https://10.1.515/":                  false,
		"https://10.1.2.3./":                 false,
		"https://localhost/":                 false,
		"https://exa%6dple.com/":             false,
		"https://example.com%00.evil/":       false,
		"https://./":                         false,
	} {
		u, err := url.Parse(link)
		if err != nil {
			require.False(t, allowed, link)
			continue
		}
		err = hosts(t, listed...).Check(u)
		if allowed {
			require.NoError(t, err, link)
			continue
		}
		var refused *egress.RefusedError
		require.ErrorAs(t, err, &refused, link)
		require.Error(t, hosts(t).Check(u), link)
	}
}

// Every public host may be called, and no private one. Addresses that are written as
// names are not names.
func TestCheckOfAll(t *testing.T) {
	t.Parallel()
	for link, allowed := range map[string]bool{
		"https://anything.example/": true, "https://8.8.8.8/": true, "https://anything.example:8443/": false, "https://2130706433/": false, "https://127.1/": false,
	} {
		u := must.Get(url.Parse(link))(t)
		if err := hosts(t, "*").Check(u); allowed {
			require.NoError(t, err, link)
		} else {
			require.Error(t, err, link)
		}
	}
}

// Where all public hosts may be called, a private address is refused as soon as it is read.
// One that the list has itself may be called.
func TestCheckOfPrivateAddresses(t *testing.T) {
	t.Parallel()
	check := func(h egress.Hosts, ip string) error {
		return h.Check(&url.URL{Scheme: "https", Host: net.JoinHostPort(ip, "443")})
	}
	for name, ip := range private {
		var refused *egress.RefusedError
		require.ErrorAs(t, check(hosts(t, "*"), ip), &refused, name)
		require.Equal(t, "the host has an address that the hub may not call", refused.Reason, name)
	}
	for _, ip := range []string{"8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8"} {
		require.NoError(t, check(hosts(t, "*"), ip), ip)
	}
	for _, ip := range []string{"10.1.2.3", "::ffff:10.1.2.3", "fd00::5"} {
		require.NoError(t, check(hosts(t, "*", "10.0.0.0/8", "fd00::5"), ip), ip)
	}
}

// Nothing that a list does not name is allowed, however it is written.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{"https://example.com/", "https://example.com.:443", "https://a@b.example.com", "https://[::1]/", "https://127.1", "https://exa%6dple.com/"} {
		f.Add(seed)
	}
	h := hosts(f, "example.com")
	f.Fuzz(func(t *testing.T, link string) {
		u, err := url.Parse(link)
		if err != nil || h.Check(u) != nil {
			return
		}
		require.Equal(t, "https", u.Scheme)
		require.Nil(t, u.User)
		require.Contains(t, []string{"", "443"}, u.Port())
	})
}

// A list that is accepted never allows what every list refuses.
func FuzzParseHosts(f *testing.F) {
	for _, seed := range []string{"example.com", "*.example.com:8443", "10.0.0.0/8", "[fd00::5]:9000", "*", "127.1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, item string) {
		h, err := egress.ParseHosts([]string{item})
		if err != nil {
			return
		}
		for _, link := range []string{"http://example.com/", "https://a@example.com/", "https:///", "https://[::1%25lo]/"} {
			require.Error(t, h.Check(must.Get(url.Parse(link))(t)))
		}
	})
}
