package caddymodule

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// proxyHeaders are headers by which a request says that it came through a proxy, with values
// that claim to come from an address in `trust_tenant_from`.
var proxyHeaders = map[string]string{
	"X-Forwarded-For": "10.0.0.9", "X-Forwarded-Host": "hub.example", "X-Forwarded-Proto": "https", "X-Forwarded-Port": "1", "X-Forwarded-Server": "x",
	"X-Forwarded": "for=10.0.0.9", "Forwarded": "for=10.0.0.9", "Via": "1.1 proxy", "X-Real-Ip": "10.0.0.9", "X-Client-Ip": "10.0.0.9",
	"True-Client-Ip": "10.0.0.9", "Cf-Connecting-Ip": "10.0.0.9", "X-Original-Forwarded-For": "10.0.0.9", "X-Envoy-External-Address": "10.0.0.9",
	"X-Amzn-Trace-Id": "Root=1", "X-Cluster-Client-Ip": "10.0.0.9", "Fastly-Client-Ip": "10.0.0.9", "X-Remote-Addr": "10.0.0.9",
}

// through is a request as a server of Caddy's hands it to handlers.
func through(t *testing.T, server *caddyhttp.Server, from string, header map[string]string) *http.Request {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/queue", nil)
	r.RemoteAddr = from
	for key, value := range header {
		r.Header.Set(key, value)
	}
	return caddyhttp.PrepareRequest(r, caddy.NewReplacer(), httptest.NewRecorder(), server)
}

// serverBehind is a server that was told of proxies in 10.0.0.0/24, strictly or not.
func serverBehind(t *testing.T, strict int) *caddyhttp.Server {
	t.Helper()
	config := fmt.Appendf(nil, `{"admin": {"disabled": true}, "apps": {"http": {"servers": {"x": {
		"listen": ["127.0.0.1:0"], "trusted_proxies": {"source": "static", "ranges": ["10.0.0.0/24"]}, "trusted_proxies_strict": %d}}}}}`, strict)
	var c caddy.Config
	require.NoError(t, json.Unmarshal(config, &c))
	ctx := provision(t, &c)
	return must.Get(ctx.App("http"))(t).(*caddyhttp.App).Servers["x"]
}

// Nobody who came through a proxy names a tenant by an address, whatever the headers say,
// whether the server knows the proxy or not.
func TestTrustEndsAtProxies(t *testing.T) {
	t.Parallel()
	trusted := must.Get(parseRanges([]string{"10.0.0.9", "127.0.0.1"}))(t)
	servers := map[string]*caddyhttp.Server{"no proxies": {}, "strict": serverBehind(t, 1), "not strict": serverBehind(t, 0)}
	for name, server := range servers {
		h := Handler{Tenant: defaultTenant, trusted: trusted, loose: looseProxies(server)}
		require.Equal(t, name == "not strict", h.loose, name)
		for header, value := range proxyHeaders {
			for _, from := range []string{"10.0.0.9:1", "127.0.0.1:1", "10.0.0.1:1", "192.0.2.1:1"} {
				for _, value := range []string{value, ""} {
					seen := new(recorder)
					h.hub = seen
					r := through(t, server, from, map[string]string{header: value, tenantHeader: "ada"})
					require.NoError(t, h.ServeHTTP(httptest.NewRecorder(), r, refuseNext))
					require.False(t, seen.visitor.Trusted, "%s, %s, %s: %q", name, from, header, value)
					require.Empty(t, seen.visitor.Tenant)
					require.True(t, seen.visitor.Forwarded)
				}
			}
		}
		seen := new(recorder)
		h.hub = seen
		r := through(t, server, "10.0.0.9:1", map[string]string{tenantHeader: "ada"})
		require.NoError(t, h.ServeHTTP(httptest.NewRecorder(), r, refuseNext))
		require.Equal(t, name != "not strict", seen.visitor.Trusted, name)

		r = through(t, server, "10.0.0.9:1", map[string]string{tenantHeader: "ada"})
		r.ProtoMajor, r.ProtoMinor = 1, 0 // as nginx does without proxy_http_version
		require.NoError(t, h.ServeHTTP(httptest.NewRecorder(), r, refuseNext))
		require.False(t, seen.visitor.Trusted, name)
	}
}

// The address by which callers are limited and written down is none that they can choose.
func TestAddressesThatCount(t *testing.T) {
	loose, strict := serverBehind(t, 0), serverBehind(t, 1)
	type row struct {
		server *caddyhttp.Server
		from   string
		header map[string]string
		want   api.Visitor
	}
	beside.Cases(t, map[string]row{
		"no proxy":              {new(caddyhttp.Server), "192.0.2.1:1", nil, api.Visitor{IP: "192.0.2.1"}},
		"undeclared":            {new(caddyhttp.Server), "10.0.0.1:1", map[string]string{"X-Forwarded-For": "9.9.9.9"}, api.Visitor{IP: "10.0.0.1", Forwarded: true, Proxied: true}},
		"undeclared, RFC 7239":  {new(caddyhttp.Server), "10.0.0.1:1", map[string]string{"Forwarded": "for=9.9.9.9"}, api.Visitor{IP: "10.0.0.1", Forwarded: true, Proxied: true}},
		"undeclared tells lies": {strict, "192.0.2.1:1", map[string]string{"X-Forwarded-Host": "hub.example", "X-Forwarded-Proto": "https"}, api.Visitor{IP: "192.0.2.1", Forwarded: true, Proxied: true}},
		"strict":                {strict, "10.0.0.1:1", map[string]string{"X-Forwarded-For": "10.0.0.9, 192.0.2.1"}, api.Visitor{IP: "192.0.2.1", Forwarded: true}},
		"strict, two proxies":   {strict, "10.0.0.1:1", map[string]string{"X-Forwarded-For": "1.2.3.4, 192.0.2.1, 10.0.0.2"}, api.Visitor{IP: "192.0.2.1", Forwarded: true}},
		"strict, with a host":   {strict, "10.0.0.1:1", map[string]string{"X-Forwarded-Host": "hub.example, inner"}, api.Visitor{IP: "10.0.0.1", Host: "hub.example", Forwarded: true}},
		"strict, with TLS":      {strict, "10.0.0.1:1", map[string]string{"X-Forwarded-Proto": "https"}, api.Visitor{IP: "10.0.0.1", Secure: true, Forwarded: true}},
		"strict, no header":     {strict, "10.0.0.1:1", nil, api.Visitor{IP: "10.0.0.1"}},
		"not strict":            {loose, "10.0.0.1:1", map[string]string{"X-Forwarded-For": "9.9.9.9, 192.0.2.1"}, api.Visitor{IP: "10.0.0.1", Forwarded: true, Proxied: true}},
		"IPv6 with a zone":      {new(caddyhttp.Server), "[fe80::1%eth0]:1", nil, api.Visitor{IP: "fe80::1"}},
		"IPv4 in IPv6":          {new(caddyhttp.Server), "[::ffff:192.0.2.1]:1", nil, api.Visitor{IP: "192.0.2.1"}},
		"a Unix socket":         {new(caddyhttp.Server), "@", nil, api.Visitor{IP: "@"}},
	}, func(t *testing.T, tc row) {
		seen := new(recorder)
		h := Handler{Tenant: defaultTenant, hub: seen}
		require.NoError(t, h.ServeHTTP(httptest.NewRecorder(), through(t, tc.server, tc.from, tc.header), refuseNext))
		require.Equal(t, tc.want, seen.visitor)
	})
}

func TestKnownHosts(t *testing.T) {
	t.Parallel()
	machine := must.Get(os.Hostname())(t)
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
