package shell

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// A site without TLS is a warning, but on this machine; one whose certificate nobody trusts
// is an error.
func TestCheckSite(t *testing.T) {
	t.Parallel()
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(untrusted.Close)
	for site, level := range map[string]string{
		"http://hub.example.com": "warning", "http://10.0.0.2:8188": "warning", "http://localhost:8188": "ok",
		"http://[::1]:8188": "ok", "http://127.0.0.1:8188": "ok", untrusted.URL: "error", "https://127.0.0.1:1": "error", "http://%": "error",
	} {
		f := checkSite(t.Context(), site)
		require.Equal(t, level, f.Level, "%s: %s", site, f.Says)
		require.Equal(t, "site", f.About)
		require.NotEmpty(t, f.Says)
	}
}
