package api

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
)

// Handlers and libraries see the same path that the router decided on.
func TestHandlersSeeTheCanonicalURL(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodGet, "/%61/b%2fc?x=1;2&x=3", nil)
	path, err := aiohttp.ReadPath(r.URL)
	require.NoError(t, err)
	out := WithPath(r, path)
	require.Equal(t, "/a/b/c", out.URL.Path)
	require.Equal(t, "/a/b%2Fc?x=1;2&x=3", out.URL.RequestURI())
	require.Equal(t, path, PathOf(out))
	require.Equal(t, "1;2", QueryOf(out).Get("x"))
	require.Equal(t, "/%61/b%2fc", r.URL.EscapedPath(), "the web server's own request is not touched")
}
