package caddymodule

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/stretchr/testify/require"
)

func TestKnownHosts(t *testing.T) {
	t.Parallel()
	machine, err := os.Hostname()
	require.NoError(t, err)
	site := &caddyhttp.MatchHost{"ui.example", "*.wild.example"}
	server := &caddyhttp.Server{
		Listen: []string{"tcp/bound.example:8188", ":8188", "unix//run/hub.sock"},
		Routes: caddyhttp.RouteList{
			{MatcherSets: caddyhttp.MatcherSets{{site}}},
			{Handlers: []caddyhttp.MiddlewareHandler{&caddyhttp.Subroute{Routes: caddyhttp.RouteList{
				{MatcherSets: caddyhttp.MatcherSets{{&caddyhttp.MatchHost{"nested.example"}}}},
			}}}},
		},
	}
	known := namesOf(server, []string{"Added.example", "*.corp.example"})
	for host, want := range map[string]bool{
		"": true, "localhost": true, "localhost:8188": true, "a.localhost": true, "hub": true, "hub:8188": true, machine: true,
		"127.0.0.1": true, "127.0.0.1:8188": true, "10.1.2.3:8188": true, "8.8.8.8": true, "[::1]:8188": true, "[fd00::1]": true, "::1": true,
		"hub.local": true, "hub.LAN:8188": true, "hub.internal": true, "nas.home.arpa": true,
		"bound.example": true, "bound.example:9": true, "ui.example:8188": true, "UI.example": true, "a.wild.example": true, "nested.example": true,
		"added.example": true, "added.example.": true, "hub.corp.example": true,
		"evil.example": false, "evil.example:8188": false, "evil.example.": false, "corp.example": false, "a.b.corp.example": false,
		"evilcorp.example": false, "added.example.evil.example": false, "127.0.0.1.evil.example": false, "127.0.0.1.nip.io": false,
		"local.evil.example": false, "localhost.evil.example": false,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), httptest.NewRecorder(), server)
		require.Equal(t, want, known.knows(r), host)
	}
	all := namesOf(nil, []string{"*"})
	r := httptest.NewRequest(http.MethodGet, "http://evil.example/", nil)
	require.True(t, all.knows(r))
}

// Host names are a danger only to a site that a page on the web cannot reach
// by itself.
func TestWithinReach(t *testing.T) {
	t.Parallel()
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 8188} }
	for name, c := range map[string]struct {
		local net.Addr
		tls   bool
		want  bool
	}{
		"loopback":      {local: tcp("127.0.0.1"), want: true},
		"loopback, TLS": {local: tcp("127.0.0.1"), tls: true},
		"IPv6 loopback": {local: tcp("::1"), want: true},
		"mapped":        {local: tcp("::ffff:10.0.0.1"), want: true},
		"private":       {local: tcp("192.168.1.5"), want: true},
		"unique local":  {local: tcp("fd00::5"), want: true},
		"link-local":    {local: &net.TCPAddr{IP: net.ParseIP("fe80::5"), Zone: "eth0"}, want: true},
		"overlay":       {local: tcp("100.101.102.103"), want: true},
		"public":        {local: tcp("203.0.113.5")},
		"Unix socket":   {local: &net.UnixAddr{Name: "/run/hub.sock", Net: "unix"}},
		"unknown":       {},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if c.local != nil {
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, c.local))
		}
		if c.tls {
			r.TLS = &tls.ConnectionState{}
		}
		require.Equal(t, c.want, withinReach(r), name)
	}
}

// Being logged in changes nothing: some logins, such as those by address or by
// certificate, come with a request whatever host it names.
func TestStrangeHost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		host, user string
		want       bool
	}{
		{host: "evil.example", want: true},
		{host: "evil.example", user: "ada", want: true},
		{host: "hub.example"},
		{host: "hub.example", user: "ada"},
		{host: "10.0.0.1"},
	} {
		seen := new(recorder)
		h := Handler{Tenant: defaultTenant, hub: seen, names: func() *hostNames { return namesOf(nil, []string{"hub.example"}) }}
		r := request("10.0.0.1:1", "", c.user)
		r.Host = c.host
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2)}))
		require.NoError(t, h.ServeHTTP(httptest.NewRecorder(), r, refuseNext))
		require.Equal(t, c.want, seen.visitor.StrangeHost, c)
	}
}
