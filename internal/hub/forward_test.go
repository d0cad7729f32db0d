package hub_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/aiohttp/aiohttptest"
	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
	"github.com/comfyhub/comfyhub/system/network/loopback"
)

// pack stands in for custom nodes installed in a simulated instance: it answers below /pack/ and
// passes everything else to the simulator.
type pack struct {
	*httptest.Server
	name string
	mu   sync.Mutex
	seen []string // method, escaped path and query, body
}

func newPack(t *testing.T, name string, c sim.Config) *pack {
	t.Helper()
	i := newInstance(t, c)
	p := &pack{name: name}
	p.Server = simtest.Front(t, i.url(), func(w http.ResponseWriter, r *http.Request, rest http.Handler) {
		own := strings.HasPrefix(strings.TrimPrefix(r.URL.Path, "/api"), "/pack/") || isOfManager(r.URL.Path) || strings.HasPrefix(r.URL.Path, "/extensions/")
		own = own || strings.HasPrefix(r.URL.Path, files.HeldPath) && !strings.HasSuffix(r.URL.Path, "nope")
		log := r.URL.Path == "/internal/logs/subscribe"
		if own || log {
			body, _ := io.ReadAll(r.Body)
			p.mu.Lock()
			p.seen = append(p.seen, r.Method+" "+r.URL.RequestURI()+" "+string(body))
			p.mu.Unlock()
			r.Body = io.NopCloser(strings.NewReader(string(body)))
		}
		if !own {
			rest.ServeHTTP(w, r)
			return
		}
		p.answer(w, r)
	})
	return p
}

// isOfManager reports whether a pack answers for ComfyUI-Manager, loosely.
func isOfManager(path string) bool {
	path = strings.ToLower(path)
	for _, name := range []string{"/manager", "/customnode", "/snapshot", "/externalmodel", "/comfyui_manager", "/alternatives", "/model/", "download", "/tasks"} {
		if strings.Contains(path, name) && !strings.Contains(path, "/managers") {
			return true
		}
	}
	return false
}

func (p *pack) answer(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/pack/ws":
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer conn.CloseNow()
		kind, frame, err := conn.Read(r.Context())
		if err == nil {
			_ = conn.Write(r.Context(), kind, append([]byte(p.name+": "), frame...))
		}
	case strings.HasPrefix(r.URL.Path, files.HeldPath):
		_, _ = io.WriteString(w, p.name)
	case r.URL.Path == "/pack/file":
		http.ServeContent(w, r, "x.bin", time.Unix(1, 0), strings.NewReader("0123456789"))
	default:
		w.Header().Set("Content-Language", r.Header.Get("Origin")+r.Header.Get("Sec-Fetch-Mode"))
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, p.name)
	}
}

func (p *pack) last() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.seen) == 0 {
		return ""
	}
	return p.seen[len(p.seen)-1]
}

// packed is a bench with instances that have custom nodes.
func packed(t *testing.T, packs ...*pack) *bench {
	b := newBench(t, 0, func(b *bench) {
		for _, p := range packs {
			b.settings.Instances = append(b.settings.Instances, p.URL)
		}
	})
	return b
}

func TestCustomRoutes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newPack(t, "one", sim.Config{})
		b := packed(t, p)
		for _, path := range []string{"/pack/a%2Fb%20c/%C3%BC?x=%2F&y=1;2", "/pack/", "/pack/a//b", "/pack/a+b"} {
			resp := b.send(exchange{method: "PATCH", path: path, body: "body", header: map[string]string{"Origin": "http://" + b.web.Listener.Addr().String(), "Sec-Fetch-Mode": "cors"}})
			body := answered(read(t, resp))(t, http.StatusTeapot)
			require.Equal(t, "one", string(body))
			require.Equal(t, "PATCH "+path+" body", p.last())
			require.Empty(t, resp.Header.Get("Content-Language"), "what a browser says of the page stays at the hub")
		}

		resp := b.send(exchange{method: "GET", path: "/pack/file", header: map[string]string{"Range": "bytes=2-4"}})
		require.Equal(t, "234", string(answered(read(t, resp))(t, http.StatusPartialContent)))
		require.Equal(t, "bytes 2-4/10", resp.Header.Get("Content-Range"))

		conn, _, err := websocket.Dial(t.Context(), b.web.URL+"/pack/ws", nil)
		require.NoError(t, err)
		require.NoError(t, conn.Write(t.Context(), websocket.MessageText, []byte("hello")))
		_, frame, err := conn.Read(t.Context())
		require.NoError(t, err)
		require.Equal(t, "one: hello", string(frame))
		require.NoError(t, conn.CloseNow())
	})
}

// Calls to custom nodes name no client. They go to the instance where the job of
// the client at that address runs or ran. Pages always come from one instance.
func TestStickyCalls(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		first, second := newPack(t, "first", sim.Config{}), newPack(t, "second", sim.Config{})
		b := packed(t, first, second)
		call := func() string {
			_, body := b.get("/pack/x")
			return string(body)
		}
		primary := call()
		busy := b.submit(work(3000, 1, "none"), "other")
		running := func() string {
			for _, i := range b.hub.Fleet.Instances() {
				if i.Running == busy {
					return i.URL
				}
			}
			return ""
		}
		eventually(t, func() bool { return running() != "" }, time.Minute, 5*time.Millisecond)
		free := second
		if running() == second.URL {
			free = first
		}
		id := b.submit(picture(1), "me")
		b.finished(id)
		_, body := b.get("/pack/x?clientId=me")
		require.Equal(t, free.name, string(body))
		_, body = b.get("/pack/x?clientId=nobody")
		require.Equal(t, primary, string(body))
		_, body = b.get("/extensions/pack/x.js?clientId=me")
		require.Equal(t, primary, string(body))
		require.NotEqual(t, free.name, call(), "a running job comes before one that has ended")
		b.posts("/interrupt", `{"prompt_id": "`+busy+`"}`)
		b.finished(busy)
	})
}

// A prompt that is answered from an instance's cache names the file of the run before. If that
// was deleted, the next run must make it again, and not name it again.
func TestCachedOutputThatWasDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		b := newBench(t, 0, serving(sim.Config{Dir: dir}))
		run := func(id string) {
			b.posts("/prompt", fmt.Sprintf(`{"prompt": %s, "prompt_id": %q}`, work(0, 7, "none"), id))
			eventually(t, func() bool {
				_, text := b.get("/hub/jobs/" + id)
				return strings.Contains(string(text), `"status": "done"`) || strings.Contains(string(text), `"status": "failed"`)
			}, time.Minute, 10*time.Millisecond)
			require.Contains(t, b.text("/hub/jobs/"+id), `"status": "done"`)
		}
		run("first")
		outputs := must(filepath.Glob(filepath.Join(dir, "output", "*.png")))(t)
		require.Len(t, outputs, 1)
		require.NoError(t, os.Remove(outputs[0]))
		run("second")
	})
}

const heldPNG = "\x89PNG\r\n\x1a\n0000"

func TestHeldPictures(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newPack(t, "one", sim.Config{})
		b := packed(t, p)
		b.play([]exchange{
			{method: "PUT", path: "/api/etn/image/a%2Fb", body: heldPNG, status: 201, want: `{"status": "success"}`},
			{method: "PUT", path: "/api/etn/image/a%2Fb", body: "other", status: 200, want: `{"status": "cached"}`},
			{method: "GET", path: "/api/etn/image/a%2Fb", status: 200, want: heldPNG},
			{method: "GET", path: "/api/etn/image/nope", status: 404, want: `{"error": "Image not found"}`},
			{method: "PUT", path: "/api/etn/image/..%2Fx", body: "x", status: 400, want: `{"error": "Invalid id"}`},
			{method: "GET", path: "/api/etn/image/%2e%2e%2Fx", status: 404, want: `{"error": "Image not found"}`},
			{method: "PUT", path: "/api/etn/image/..", body: "x", status: 405, want: "405: Method Not Allowed"},
			{method: "GET", path: "/api/etn/image/%2e%2e", status: 404, want: "404: Not Found"},
			{method: "GET", path: "/api/etn/image/left-by-a-node", status: 200, want: "one"},
		})

		// A graph names a file that it needs, and the instance has the file before it gets the job.
		ctx := t.Context()
		graph := []byte(`{"1": {"class_type": "ETN_LoadImageCache", "inputs": {"id": "a/b"}},
			"2": {"class_type": "Other", "inputs": {"id": "a/b"}}, "3": {"class_type": "ETN_X", "inputs": {"id": "nope", "link": ["1", 0]}}}`)
		parsed := must(catalog.ParseGraph(graph))(t)
		encoded := must(b.hub.Submitter.Pin(ctx, "default", parsed, nil))(t)
		require.Contains(t, string(encoded), `"held":["a/b"]`)
		in := must(files.DecodeInputs(encoded))(t)
		require.Empty(t, must(b.hub.Transfer.Push(ctx, "default", in, files.Target{Name: "one", Instance: b.hub.Dispatch.Instances.First()}))(t))
		require.Equal(t, "PUT /api/etn/image/a%2Fb "+heldPNG, p.last())
		require.Nil(t, must(b.hub.Submitter.Pin(ctx, "another", parsed, nil))(t), "another tenant's pictures are not there")

		// Waiting jobs that only name held pictures do not stop the sweep.
		require.Empty(t, must(b.hub.Janitor.Pinned.All(ctx))(t))
		require.NoError(t, b.hub.Held.Expire(ctx, time.Now()))
		require.True(t, b.hub.Held.Has(ctx, "default", "a/b"))

		b.settings.MaxUpload = 8
		require.NoError(t, b.hub.Start(ctx, b.settings))
		for _, length := range []int64{10, -1} { // known, and not
			req := must(http.NewRequest(http.MethodPut, b.web.URL+"/api/etn/image/x", struct{ io.Reader }{strings.NewReader("0123456789")}))(t)
			req.ContentLength = length
			require.Equal(t, http.StatusRequestEntityTooLarge, statusOf(read(t, must(http.DefaultClient.Do(req))(t))))
			require.False(t, b.hub.Held.Has(ctx, "default", "x"))
		}
	})
}

// spy records the clients' requests that reach an instance. These carry a mark in their query.
type spy struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string // methods and targets
}

const mark = "mark=1"

func newSpy(t *testing.T, to *instance) *spy {
	t.Helper()
	s := &spy{}
	s.Server = simtest.Front(t, to.url(), func(w http.ResponseWriter, r *http.Request, rest http.Handler) {
		if strings.Contains(r.URL.RawQuery, mark) {
			s.mu.Lock()
			s.seen = append(s.seen, r.Method+" "+r.RequestURI)
			s.mu.Unlock()
		}
		rest.ServeHTTP(w, r)
	})
	return s
}

func (s *spy) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// raw sends a request exactly as written and returns the status, or 0 for none.
func (b *bench) raw(method, target, header string) int {
	b.t.Helper()
	conn := must(loopback.Dial(b.t.Context(), "tcp", b.web.Listener.Addr().String()))(b.t)
	defer conn.Close()
	must(conn.Write([]byte(method + " " + target + " HTTP/1.1\r\nHost: hub\r\n" + header + "\r\n")))(b.t)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// passedOn lists the routes that the hub answers by asking an instance, and that everybody may see.
var passedOn = []string{
	"/", "/extensions", "/i18n", "/workflow_templates", "/global_subgraphs", "/global_subgraphs/{id}", "/node_replacements",
	"/embeddings", "/models", "/models/{folder}", "/view_metadata/{folder_name}",
	"/experiment/models/preview/{folder}/{path_index}/{filename:.*}", "/folder_paths", "/logs", "/logs/raw",
}

// However a client spells the path of one of ComfyUI's routes, the request never
// reaches an instance behind the hub's back.
func TestNoSpellingReachesAnInstancesOwnRoutes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("much computing, one thing after the other: nothing for the race detector")
	}
	var instance *spy
	b := newBench(t, 0, func(b *bench) {
		instance = newSpy(t, newInstance(t, sim.Config{Version: "0.33.0"}))
		b.settings.Instances = []string{instance.URL}
	})
	routes := map[string]string{} // the route that aiohttp takes a request for
	for _, row := range aiohttptest.Rows(t) {
		path, _, _ := strings.Cut(row.Target, "?")
		routes[row.Method+" "+path] = row.Route
	}
	const (
		post    = "Content-Length: 0\r\nConnection: close\r\n"
		upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	)
	for _, row := range aiohttptest.Rows(t) {
		if strings.ContainsFunc(row.Target, func(r rune) bool { return r == '#' || r >= utf8.RuneSelf }) {
			continue // not a request target
		}
		target := row.Target + "?" + mark
		if strings.Contains(row.Target, "?") {
			target = row.Target + "&" + mark
		}
		b.raw(row.Method, target, post)
		if row.Method == http.MethodGet {
			b.raw(http.MethodGet, target, upgrade)
		}
	}
	seen := instance.all()
	require.Greater(t, len(seen), 100, "paths of custom nodes do reach the instance")
	for _, s := range seen {
		path, _, _ := strings.Cut(s, "?")
		route := strings.TrimPrefix(routes[path], "/api")
		if route != "" && !slices.Contains(passedOn, route) {
			t.Errorf("%s reached the instance, which takes it for its own %s", s, route)
		}
	}
	// An id or a class whose escapes are no UTF-8 is one that nobody has, as for aiohttp, which leaves
	// such escapes as they are.
	before := len(instance.all())
	for _, path := range []string{"/history/%E4", "/api/history/%e4%20x", "/object_info/%E4", "/api/object_info/a%FF"} {
		require.Equal(t, "{}", string(answered(read(t, b.send(exchange{method: "GET", path: path + "?" + mark})))(t, http.StatusOK, path)), path)
	}
	for _, path := range []string{"/history/%E4/x", "/history/", "/models/%E4", "/%E4", "/history/%E4%2f..", "/history/%E4%00"} {
		require.Equal(t, http.StatusNotFound, b.raw("GET", path+"?"+mark, ""), path)
	}
	require.Len(t, instance.all(), before)
}
