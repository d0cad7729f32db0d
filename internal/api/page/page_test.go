package page

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
	"github.com/comfyhub/comfyhub/internal/api"
)

func get(t *testing.T, target string) *http.Response {
	t.Helper()
	table := &api.Router{}
	AddRoutes(table)
	at, err := url.Parse(target)
	require.NoError(t, err)
	p, err := aiohttp.ReadPath(at)
	require.NoError(t, err)
	handler, values, _ := table.Find(http.MethodGet, p)
	w := httptest.NewRecorder()
	if handler == nil {
		w.WriteHeader(http.StatusNotFound)
		return w.Result()
	}
	handler(w, api.WithPath(httptest.NewRequest(http.MethodGet, target, http.NoBody), p), api.Requester{}, values)
	return w.Result()
}

// Every file is served with a policy under which nothing of another origin, and no inline
// script or style, does anything; together they are small.
func TestFiles(t *testing.T) {
	t.Parallel()
	size := 0
	require.NoError(t, fs.WalkDir(static, "static", func(name string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)
		if entry.IsDir() {
			return nil
		}
		resp := get(t, "/hub/page/"+path.Base(name))
		require.Equal(t, http.StatusOK, resp.StatusCode, name)
		require.Equal(t, kinds[path.Ext(name)], resp.Header.Get("Content-Type"))
		require.Equal(t, policy, resp.Header.Get("Content-Security-Policy"))
		require.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"))
		require.NotEmpty(t, resp.Header.Get("Etag"))
		size += int(resp.ContentLength)
		body, err := static.ReadFile(name)
		size += len(body)
		require.NoError(t, err)
		if path.Ext(name) == ".js" {
			// Texts of users reach the document as text only.
			require.NotRegexp(t, `innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|DOMParser|\.srcdoc`, string(body), name)
		}
		require.Empty(t, regexp.MustCompile(`(?i)(?:src|href|url\(|import|from|fetch\()\s*["'=(]+https?://`).Find(body), "%s loads something of another host", name)
		return err
	}))
	require.Less(t, size, 170_000, "over the wire, not even compressed")
	index := get(t, "/hub/")
	require.Equal(t, http.StatusOK, index.StatusCode)
	require.Equal(t, "text/html; charset=utf-8", index.Header.Get("Content-Type"))
	moved := get(t, "/hub")
	require.Equal(t, http.StatusPermanentRedirect, moved.StatusCode)
	require.Equal(t, "hub/", moved.Header.Get("Location"))
	for _, none := range []string{"/hub/page/", "/hub/page/none.js", "/hub/page/%2e%2e%2fpage.go", "/hub/page/page.go"} {
		require.Equal(t, http.StatusNotFound, get(t, none).StatusCode, none)
	}
}
