package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Behind a proxy that is trusted the browser's Host is in X-Forwarded-Host.
func TestOriginBehindAProxy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		host, told, origin string
		want               decision
	}{
		"the proxy's own name":         {host: "comfyhub:8188", origin: "https://hub.example", want: refusedHere},
		"told by the proxy":            {host: "comfyhub:8188", told: "hub.example", origin: "https://hub.example", want: admitted},
		"told, and from another":       {host: "comfyhub:8188", told: "hub.example", origin: "https://evil.example", want: refusedHere},
		"told, and a page of the name": {host: "127.0.0.1:8188", told: "hub.example", origin: "http://127.0.0.1:8188", want: refusedHere},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(http.MethodPost, "/prompt", nil)
			r.Host = c.host
			r.Header.Set("Origin", c.origin)
			require.Equal(t, c.want, judge(r, Visitor{Host: c.told}))
		})
	}
}

// The page of another program at the same name, on another port, is not the hub's own, on
// whichever side a port is missing.
func TestPortsOfOrigins(t *testing.T) {
	t.Parallel()
	for n, c := range []struct {
		host, origin, site string
		forwarded          bool
		own                bool
	}{
		{host: "hub.lan:8188", origin: "http://hub.lan:8188", own: true},
		{host: "hub.lan:8188", origin: "http://hub.lan"},
		{host: "hub.lan:8188", origin: "https://hub.lan"},
		{host: "127.0.0.1:8188", origin: "http://127.0.0.1"},
		{host: "[::1]:8188", origin: "http://[::1]"},
		{host: "hub.lan", origin: "http://hub.lan:8188"},
		{host: "hub.lan", origin: "http://hub.lan", own: true},
		{host: "hub.lan", origin: "https://hub.lan", own: true},
		{host: "hub.lan:443", origin: "https://hub.lan", own: true},
		{host: "hub.lan:80", origin: "https://hub.lan", own: true}, // TLS ends in front of a proxy
		{host: "hub.lan:80", origin: "http://hub.lan:8188"},
		{host: "hub.lan", origin: "http://hub.lan:8080", forwarded: true, own: true}, // $host in nginx
		{host: "hub.lan:8188", origin: "http://hub.lan", forwarded: true},
		{host: "hub.lan:8188", origin: "https://hub.lan", site: "same-origin", own: true},
	} {
		for _, method := range []string{http.MethodPost, http.MethodDelete, http.MethodGet} {
			r := httptest.NewRequest(method, "/prompt", nil)
			r.Host = c.host
			r.Header.Set("Origin", c.origin)
			if c.site != "" {
				r.Header.Set("Sec-Fetch-Site", c.site)
			}
			if method == http.MethodGet {
				r.Header.Set("Upgrade", "websocket")
			}
			require.Equal(t, c.own, judge(r, Visitor{Forwarded: c.forwarded}) == admitted, "%d: %s %+v", n, method, c)
		}
		r := httptest.NewRequest(http.MethodGet, "/queue", nil)
		r.Host = c.host
		r.Header.Set("Origin", c.origin)
		_, port := splitHost(c.host)
		_, of, _ := strings.Cut(strings.TrimPrefix(c.origin, "http://"), ":")
		if port == "" || of == "" {
			require.Equal(t, admitted, judge(r, Visitor{}), "what it only reads its browser keeps from it")
		}
	}
}
