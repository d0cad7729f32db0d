// Package simtest helps tests that need an instance to behave in ways that a
// simulated one does not.
package simtest

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/system/network/loopback"
)

// Front serves a reverse proxy in front of the instance at target until the test
// ends. handle gets every request. It answers some itself and passes the others on
// to instance, sockets included.
func Front(t testing.TB, target string, handle func(w http.ResponseWriter, r *http.Request, instance http.Handler)) *httptest.Server {
	t.Helper()
	to, err := url.Parse(target)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(to)
	// A test that ends gives up the requests that are still in progress.
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	serve := httptest.NewServer
	if loopback.Has(to.Host) {
		serve = loopback.Serve
	}
	front := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handle(w, r, proxy)
	}))
	t.Cleanup(func() {
		// Sockets are hijacked, and Close waits for the other connections.
		front.CloseClientConnections()
		front.Close()
	})
	return front
}
