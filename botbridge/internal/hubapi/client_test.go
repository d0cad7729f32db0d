package hubapi

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

func TestNewReadsTheHubsURL(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"http://127.0.0.1:8188", "https://user:pass@hub.example/comfy/"} {
		c, err := New(base, Options{})
		require.NoError(t, err, base)
		c.Close()
	}
	// A query or fragment would swallow every path.
	for _, base := range []string{"hub.example", "http://", "ftp://hub.example", "http://hub.example/?a=", "http://hub.example/#x", "http://u:secret@hub.example:x/"} {
		_, err := New(base, Options{})
		require.ErrorIs(t, err, errBase, base)
		require.NotContains(t, err.Error(), "secret")
	}
}

// A link is put behind the operator's own address; it must not lead away.
func TestLinkIsAPath(t *testing.T) {
	t.Parallel()
	var link string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"url":"` + link + `"}`))
	}))
	defer server.Close()
	c, err := New(server.URL, Options{})
	require.NoError(t, err)
	defer c.Close()
	for _, link = range []string{"@evil.example/x", ".evil.example/x", "https://evil.example/x", "//evil.example/x", ""} {
		_, err := c.Link(t.Context(), "t", comfyui.FileRef{Filename: "a.png"}, time.Hour)
		require.ErrorIs(t, err, errLink, link)
	}
	link = "/hub/files/a.png?exp=1"
	got, err := c.Link(t.Context(), "t", comfyui.FileRef{Filename: "a.png"}, time.Hour)
	require.NoError(t, err)
	require.Equal(t, link, got)
	link = "/comfyui/hub/files/a.png?exp=1" // the hub was asked below a path
	got, err = c.Link(t.Context(), "t", comfyui.FileRef{Filename: "a.png"}, time.Hour)
	require.NoError(t, err)
	require.Equal(t, "/hub/files/a.png?exp=1", got)
}

func TestNoOtherServerHearsOfTheTenant(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s of %s", r.Method, r.URL, r.Header.Get(tenantHeader))
	}))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL+"/view", http.StatusTemporaryRedirect))
	defer server.Close()
	c, err := New(server.URL, Options{})
	require.NoError(t, err)
	defer c.Close()
	_, _, err = c.View(t.Context(), "telegram:1", comfyui.FileRef{Filename: "a.png"})
	require.ErrorIs(t, err, ErrNotFound)
}
