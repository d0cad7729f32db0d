package hub

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

	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
)

// builds is the web UI of one instance. It counts the requests for it.
type builds struct {
	mu    sync.Mutex
	body  string
	asked map[string]int // by method and path
}

func (p *builds) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[r.Method+" "+r.URL.Path]++
	w.Header().Set("Content-Type", "application/javascript")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = io.WriteString(w, p.body)
}

func (p *builds) times(method, path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[method+" "+path]
}

func (p *builds) change(body string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.body = body
}

// The second visitor costs the instance nothing, and gets what was compressed once. A request that
// may be for more than a file of the build still goes to the instance.
func TestBuildFilesAreAskedForOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const script, plain = "/assets/index-vtow2bzT.js", "/assets/plain.js"
		body := strings.Repeat("one();", 1000)
		page := &builds{body: body, asked: map[string]int{}}
		front := fronted(t, page)
		b := newBench(t, 0, func(b *bench) { b.settings.Instances = []string{front.URL} })
		require.Equal(t, body, b.text(script))
		var resp *http.Response
		eventually(t, func() bool {
			resp = b.send(exchange{method: "GET", path: script, header: map[string]string{"Accept-Encoding": "gzip, deflate, br, zstd"}})
			read(t, resp)
			return resp.Header.Get("Content-Encoding") == "zstd"
		}, time.Minute, time.Millisecond)
		require.Equal(t, []string{"Accept-Encoding"}, resp.Header.Values("Vary"))
		require.Equal(t, "public, max-age=31536000, immutable", resp.Header.Get("Cache-Control"))
		require.Less(t, resp.ContentLength, int64(len(body)))
		again := b.send(exchange{method: "GET", path: script, header: map[string]string{"Accept-Encoding": "zstd", "If-None-Match": resp.Header.Get("Etag")}})
		require.Equal(t, http.StatusNotModified, statusOf(read(t, again)))
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
			stolen.change("draw()")
			honest.change("steal()")
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
		stolen.change("sorry()")
		b.settings.Instances = []string{first.URL, second.URL}
		require.NoError(t, b.hub.Start(t.Context(), b.settings))
		eventually(t, func() bool { return b.text(script) == "sorry()" }, time.Minute, time.Millisecond)
		require.Equal(t, 1, honest.times("GET", script))
	})
}

// A library of the build without a hash in its name costs the instance nothing either, and still a
// new page never comes with an old library.
func TestLibrariesBelongToThePage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const library = "/assets/lib/vue/dist/vue.js"
		var mu sync.Mutex
		version, asked := "1", map[string]int{}
		page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			asked[r.URL.Path]++
			h := w.Header()
			h.Set("Etag", `"`+version+`"`)
			h.Set("Last-Modified", "Sun, 22 Nov 2026 04:16:37 GMT")
			if r.URL.Path == "/" {
				h.Set("Content-Type", "text/html")
				if r.Header.Get("If-None-Match") == h.Get("Etag") {
					w.WriteHeader(http.StatusNotModified)
					return
				}
			}
			_, _ = io.WriteString(w, version)
		})
		b := newBench(t, 0, func(b *bench) { b.settings.Instances = []string{fronted(t, page).URL} })
		times := func() int {
			mu.Lock()
			defer mu.Unlock()
			return asked[library]
		}
		// It is kept as soon as the hub has seen the page.
		eventually(t, func() bool {
			require.Equal(t, "1", b.text(library))
			before := times()
			require.Equal(t, "1", b.text(library))
			return times() == before
		}, time.Minute, time.Millisecond)
		before := times()
		require.Equal(t, http.StatusNotModified, statusOf(read(t, b.send(exchange{method: "GET", path: "/", header: map[string]string{"If-None-Match": `"1"`}}))))
		require.Equal(t, "1", b.text(library))
		require.Equal(t, before, times())

		mu.Lock()
		version = "2"
		mu.Unlock()
		require.Equal(t, "1", b.text(library), "an open page loads the rest of its build")
		_, body := read(t, b.send(exchange{method: "GET", path: library, header: map[string]string{"Cache-Control": "no-cache"}}))
		require.Equal(t, "2", string(body), "who reloads everything gets what is there")
		require.Equal(t, "2", b.text("/"))
		require.Equal(t, "2", b.text(library))
		require.Equal(t, "2", b.text(library))
		require.Equal(t, before+2, times())
	})
}

// The operator's own copy of the web UI is compressed once, and a file that is
// replaced shows at once.
func TestFolderIsCompressedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const script = "/assets/index-vtow2bzT.js"
		folder := t.TempDir()
		name := filepath.Join(folder, filepath.FromSlash(script))
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "index.html"), []byte("page"), 0o600))
		require.NoError(t, os.WriteFile(name, []byte(strings.Repeat("one();", 1000)), 0o600))
		b := newBench(t, 0, func(b *bench) { b.settings.Frontend = folder })
		ask := func(encoding, tag string) *http.Response {
			return b.send(exchange{method: "GET", path: script, header: map[string]string{"Accept-Encoding": encoding, "If-None-Match": tag}})
		}
		var resp *http.Response
		eventually(t, func() bool {
			resp = ask("zstd", "")
			read(t, resp)
			return resp.Header.Get("Content-Encoding") == "zstd"
		}, time.Minute, time.Millisecond)
		require.Equal(t, "application/javascript", resp.Header.Get("Content-Type"))
		require.Equal(t, "public, max-age=31536000, immutable", resp.Header.Get("Cache-Control"))
		answered(read(t, ask("zstd", resp.Header.Get("Etag"))))(t, http.StatusNotModified)

		require.NoError(t, os.WriteFile(name, []byte(strings.Repeat("three();", 1000)), 0o600))
		body := answered(read(t, ask("identity", resp.Header.Get("Etag"))))(t, http.StatusOK)
		require.Equal(t, strings.Repeat("three();", 1000), string(body))
	})
}

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
