package hub_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
)

// builds is the web UI of one instance. It counts the requests for it.
type builds struct {
	mu         sync.Mutex
	body, page string
	asked      map[string]int // by method and path
}

func (p *builds) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[r.Method+" "+r.URL.Path]++
	h := w.Header()
	h.Set("Content-Type", "application/javascript")
	h.Set("Cache-Control", "no-store")
	if p.page != "" {
		h.Set("Etag", `"`+p.page+`"`)
		h.Set("Last-Modified", "Sun, 22 Nov 2026 04:16:37 GMT")
	}
	if r.URL.Path == "/" {
		h.Set("Content-Type", "text/html")
		if p.page != "" && r.Header.Get("If-None-Match") == h.Get("Etag") {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	_, _ = io.WriteString(w, p.body)
}

func (p *builds) times(method, path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[method+" "+path]
}

func (p *builds) change(body, page string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.body, p.page = body, page
}

// The second visitor costs the instance nothing, and gets what was compressed once. A request that
// may be for more than a file of the build still goes to the instance.
func TestBuildFilesAreAskedForOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const script, plain = "/assets/index-vtow2bzT.js", "/assets/plain.js"
		body := strings.Repeat("one();", 1000)
		page := &builds{body: body, asked: map[string]int{}}
		b := newBench(t, 0, func(b *bench) { b.settings.Instances = []string{fronted(t, page).URL} })
		require.Equal(t, body, b.text(script))
		var resp *http.Response
		eventually(t, func() bool {
			resp = b.send(exchange{method: "GET", path: script, header: headers("Accept-Encoding", "gzip, deflate, br, zstd")})
			read(t, resp)
			return resp.Header.Get("Content-Encoding") == "zstd"
		}, time.Minute, time.Millisecond)
		require.Equal(t, "public, max-age=31536000, immutable", resp.Header.Get("Cache-Control"))
		require.Less(t, resp.ContentLength, int64(len(body)))
		b.tenant = "ada"
		require.Equal(t, body, b.text(script))
		require.Equal(t, http.StatusOK, statusOf(read(t, b.send(exchange{method: "HEAD", path: script}))))
		require.Equal(t, 1, page.times("GET", script))
		require.Zero(t, page.times("HEAD", script))

		b.tenant = ""
		for range 2 {
			b.text(plain)
			b.text(script + "?x=1")
		}
		require.Equal(t, 2, page.times("GET", plain))
		require.Equal(t, 3, page.times("GET", script))
	})
}

// An answer of an instance is shown only while the instance is connected and the page is its own. A
// stolen instance leaves nothing behind.
func TestBuildFilesEndWithTheirInstance(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const script = "/assets/index-vtow2bzT.js"
		stolen, honest := &builds{body: "steal()", asked: map[string]int{}}, &builds{body: "draw()", asked: map[string]int{}}
		// Its address is its name, and the first by name is the first in the configuration.
		first, second := fronted(t, stolen), fronted(t, honest)
		if first.URL > second.URL {
			first, second = second, first
			stolen.change("draw()", "")
			honest.change("steal()", "")
			stolen, honest = honest, stolen
		}
		b := newBench(t, 0, func(b *bench) { b.settings.Instances = []string{first.URL, second.URL} })
		require.Equal(t, "steal()", b.text(script))
		require.Equal(t, "steal()", b.text(script))
		b.settings.Instances = []string{second.URL}
		require.NoError(t, b.hub.Start(t.Context(), b.settings))
		eventually(t, func() bool { return b.text(script) == "draw()" }, time.Minute, time.Millisecond)
		b.connected(1) // one that is named again before it was dropped keeps its connection

		// It comes back repaired.
		stolen.change("sorry()", "")
		b.settings.Instances = []string{first.URL, second.URL}
		require.NoError(t, b.hub.Start(t.Context(), b.settings))
		eventually(t, func() bool { return b.text(script) == "sorry()" }, time.Minute, time.Millisecond)
		require.Equal(t, 1, honest.times("GET", script))
	})
}

// Browsers keep files named by their hash, whatever the instance says and whoever
// serves them. Everything else stays as ComfyUI sends it.
func TestHashedFilesAreKept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const kept, none = "public, max-age=31536000, immutable", "no-store, must-revalidate"
		const script, plain = "/assets/index-vtow2bzT.js", "/assets/plain.js"
		page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for key, value := range map[string]string{"Cache-Control": none, "Pragma": "no-cache", "Expires": "0", "Content-Type": "application/javascript"} {
				w.Header().Set(key, value)
			}
			switch {
			case strings.Contains(r.URL.Path, "gone"):
				w.WriteHeader(http.StatusNotFound)
			case strings.Contains(r.URL.Path, "page"):
				w.Header().Set("Content-Type", "text/html; charset=utf-8")
			}
			_, _ = io.WriteString(w, "one()")
		})
		b := newBench(t, 0, func(b *bench) { b.settings.Instances = []string{fronted(t, page).URL} })
		ask := func(path string, want int, control string, header ...string) (*http.Response, string) {
			t.Helper()
			resp := b.send(exchange{method: "GET", path: path, header: headers(header...)})
			body := answered(read(t, resp))(t, want, path)
			require.Equal(t, control, resp.Header.Get("Cache-Control"), path)
			require.False(t, control == kept && resp.Header.Get("Pragma")+resp.Header.Get("Expires") != "", path)
			return resp, string(body)
		}
		held, _ := ask(script, 200, kept)
		ask(script, 304, kept, "If-None-Match", held.Header.Get("Etag"))
		ask("/assets/gone-vtow2bzT.js", 404, none)
		ask("/assets/page-vtow2bzT.js", 200, none)
		ask(plain, 200, none)
		ask("/", 200, none)

		// So they do of the operator's own copy.
		b.settings.Frontend = t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(b.settings.Frontend, "assets"), 0o700))
		for _, name := range []string{"index.html", script, plain} {
			require.NoError(t, os.WriteFile(filepath.Join(b.settings.Frontend, name), []byte("two()"), 0o600))
		}
		require.NoError(t, b.hub.Start(t.Context(), b.settings))
		held, _ = ask(script, 200, kept)
		require.Equal(t, "application/javascript", held.Header.Get("Content-Type"))
		ask(plain, 200, "no-cache")
		ask("/", 200, "no-cache")
	})
}

// fronted is a simulated instance with a handler that answers for its pages and /assets.
func fronted(t *testing.T, pages http.Handler) *httptest.Server {
	t.Helper()
	return simtest.Front(t, newInstance(t, sim.Config{}).url(), func(w http.ResponseWriter, r *http.Request, rest http.Handler) {
		if r.URL.Path == "/" || strings.HasPrefix(r.URL.Path, "/assets/") {
			pages.ServeHTTP(w, r)
			return
		}
		rest.ServeHTTP(w, r)
	})
}

// The page does not come before the hub knows what its instance can run: it would open
// without nodes.
func TestPageComesWithItsNodes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		known := make(chan struct{})
		front := simtest.Front(t, newInstance(t, sim.Config{}).url(), func(w http.ResponseWriter, r *http.Request, rest http.Handler) {
			switch {
			case r.URL.Path == "/":
				_, _ = io.WriteString(w, "<!doctype html>")
				return
			case strings.HasSuffix(r.URL.Path, "/object_info"):
				select {
				case <-known:
				case <-r.Context().Done():
				}
			}
			rest.ServeHTTP(w, r)
		})
		b := newBench(t, 0)
		b.settings.Instances = []string{front.URL}
		require.NoError(t, b.hub.Start(t.Context(), b.settings))
		name := must(fleet.StaticName(front.URL))(t)
		eventually(t, func() bool { return b.hub.Clients.ByName(name) != nil }, time.Minute, time.Millisecond)
		answered(b.get("/"))(t, http.StatusServiceUnavailable)
		close(known)
		b.connected(1)
		require.Equal(t, "<!doctype html>", b.text("/"))
		require.Contains(t, b.text("/object_info"), "EmptyImage")
	})
}

// Operators, and everybody if nobody logs in, see where the page of ComfyUI comes from; others do
// not, because it is the name of an instance or a folder.
func TestStatsTellOfThePage(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, func(b *bench) { b.settings.Operators = []string{"root"} })
	name := must(fleet.StaticName(b.instances[0].url()))(t)
	comes := func(v *visitor, want string) {
		t.Helper()
		eventually(t, func() bool {
			_, body := v.send("GET", "/hub/stats", "")
			return strings.Contains(string(body), `"web_ui": `+want)
		}, time.Minute, 5*time.Millisecond)
	}
	comes(b.script(), `{"from": "instance", "name": "`+name+`"}`)
	root := b.login("root")
	comes(root, `{"from": "instance", "name": "`+name+`"}`)
	_, body := b.login("ada").send("GET", "/hub/stats", "")
	require.NotContains(t, string(body), "web_ui")

	settings := *b.hub.Settings()
	settings.Primary = []string{"gpu1", "gpu2"}
	require.NoError(t, b.hub.Start(t.Context(), settings))
	comes(root, `{"from": "nowhere", "name": "gpu1, gpu2"}`)
	settings.Frontend = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(settings.Frontend, "index.html"), []byte("a page"), 0o600))
	require.NoError(t, b.hub.Start(t.Context(), settings))
	comes(root, `{"from": "folder", "name": "`+settings.Frontend+`"}`)
}
