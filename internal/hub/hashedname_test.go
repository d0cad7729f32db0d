package hub

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
)

// Browsers keep files named by their hash, whatever the instance says and whoever
// serves them. Everything else stays as ComfyUI sends it.
func TestHashedFilesAreKept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const kept = "public, max-age=31536000, immutable"
		const script, plain = "/assets/index-vtow2bzT.js", "/assets/plain.js"
		page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "no-store, must-revalidate")
			w.Header().Set("Pragma", "no-cache")
			w.Header().Set("Expires", "0")
			switch {
			case strings.Contains(r.URL.Path, "gone"):
				w.WriteHeader(http.StatusNotFound)
			case strings.Contains(r.URL.Path, "page"):
				w.Header().Set("Content-Type", "text/html; charset=utf-8")
				_, _ = io.WriteString(w, "<html>")
			default:
				w.Header().Set("Content-Type", "application/javascript")
				_, _ = io.WriteString(w, "one()")
			}
		})
		front := fronted(t, page)
		b := newBench(t, 0, func(b *bench) { b.settings.Instances = []string{front.URL} })
		b.connected(1)
		held := b.send(exchange{method: "GET", path: script})
		read(t, held)
		control := func(path string, header map[string]string) (int, string) {
			resp := b.send(exchange{method: "GET", path: path, header: header})
			status, _ := read(t, resp)
			if resp.Header.Get("Cache-Control") == kept {
				require.Empty(t, resp.Header.Get("Pragma")+resp.Header.Get("Expires"), path)
			}
			return status, resp.Header.Get("Cache-Control")
		}
		for _, c := range []struct {
			path    string
			header  map[string]string
			status  int
			control string
		}{
			{path: script, status: 200, control: kept},
			{path: script, header: map[string]string{"If-None-Match": held.Header.Get("Etag")}, status: 304, control: kept},
			{path: "/assets/gone-vtow2bzT.js", status: 404, control: "no-store, must-revalidate"},
			{path: "/assets/page-vtow2bzT.js", status: 200, control: "no-store, must-revalidate"},
			{path: plain, status: 200, control: "no-store, must-revalidate"},
			{path: "/", status: 200, control: "no-store, must-revalidate"},
		} {
			status, got := control(c.path, c.header)
			require.Equal(t, c.status, status, c.path)
			require.Equal(t, c.control, got, c.path)
		}

		folder := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(folder, "assets"), 0o700))
		for _, name := range []string{"index.html", script, plain} {
			require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte("two()"), 0o600))
		}
		b.settings.Frontend = folder
		require.NoError(t, b.hub.Start(t.Context(), b.settings))
		for path, want := range map[string]string{script: kept, plain: "no-cache", "/": "no-cache"} {
			status, got := control(path, nil)
			require.Equal(t, 200, status)
			require.Equal(t, want, got, path)
		}
	})
}

// fronted is a simulated instance with a handler that answers for its pages and /assets.
func fronted(t *testing.T, pages http.Handler) *httptest.Server {
	t.Helper()
	server := simtest.Front(t, newInstance(t, sim.Config{}).url(), func(w http.ResponseWriter, r *http.Request, rest http.Handler) {
		if r.URL.Path == "/" || strings.HasPrefix(r.URL.Path, "/assets/") {
			pages.ServeHTTP(w, r)
			return
		}
		rest.ServeHTTP(w, r)
	})
	return server
}
