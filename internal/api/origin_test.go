package api

import (
	"net/http"
	"net/http/httptest"
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
