package comfyui

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Reasons of lost runs are shown to clients, who must not learn from them where
// an instance is.
func TestErrorsTellNoAddress(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := ln.Addr().String()
	require.NoError(t, ln.Close())
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	}))
	t.Cleanup(cut.Close)
	for _, base := range []string{"http://" + closed, cut.URL, "http://no-such-host.invalid:8188"} {
		c, err := NewClient(base, Options{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		_, _, err = c.History(ctx, "x")
		require.Error(t, err)
		require.NotContains(t, err.Error(), "127.0.0.1")
		require.NotContains(t, err.Error(), "no-such-host")
		require.NotContains(t, err.Error(), "http://")
		_, dialled := c.Dial(ctx, "sid")
		require.Error(t, dialled)
		require.NotContains(t, dialled.Error(), "127.0.0.1")
		require.NotContains(t, dialled.Error(), "no-such-host")
		if base == "http://"+closed {
			require.ErrorIs(t, err, syscall.ECONNREFUSED, "what it is can still be told")
			require.ErrorIs(t, err, ErrGone)
		}
		cancel()
	}
}
