package api

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// A redirect of an instance leads to below the path at which the browser sees the hub.
func TestRedirectsKeepThePrefix(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]string{
		"/pack/a?b=c": "/comfyui/pack/a?b=c", "/": "/comfyui/", "hub/": "hub/", "?a": "?a", "": "",
		"//other.example": "//other.example", "https://other.example/": "https://other.example/",
	} {
		w := httptest.NewRecorder()
		prefixed := withPrefix(w, "/comfyui")
		prefixed.Header().Set("Location", to)
		prefixed.WriteHeader(http.StatusFound)
		require.Equal(t, want, w.Header().Get("Location"))
	}
}
