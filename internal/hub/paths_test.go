package hub

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
	"github.com/comfyhub/comfyhub/internal/aiohttp/aiohttptest"
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
	"github.com/comfyhub/comfyhub/system/network/loopback"
)

// spy records the clients' requests that reach an instance. These carry a mark in
// their query.
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
	conn, err := loopback.Dial(b.t.Context(), "tcp", b.web.Listener.Addr().String())
	require.NoError(b.t, err)
	defer conn.Close()
	_, err = conn.Write([]byte(method + " " + target + " HTTP/1.1\r\nHost: hub\r\n" + header + "\r\n"))
	require.NoError(b.t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// passedOn lists the routes that the hub answers by asking an instance, and that
// everybody may see.
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
	b.connected(1)
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
}

// These spellings come from the attack. Each is the route itself, or nothing.
func TestSpellingsOfTheHubsRoutes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1)
		for _, c := range []struct {
			method, target string
			want           int
		}{
			{"GET", "/%71ueue", 200},
			{"GET", "/api/%71ueue", 200},
			{"GET", "/%61pi/queue", 200},
			{"GET", "/%68istory", 200},
			{"GET", "/%76iew", 404},
			{"POST", "/%69nterrupt", 200},
			{"POST", "/%70rompt", 500},
			{"POST", "/%75pload/image", 400},
			{"GET", "/%77s", 400},
			{"GET", "/%68ub/instances", 200},
			{"GET", "//prompt", 404},
			{"POST", "//prompt", 405},
			{"GET", "/api//prompt", 404},
			{"POST", "/api//prompt", 405},
			{"GET", "/API/queue", 404},
			{"GET", "/Queue", 404},
			{"GET", "/queue/", 404},
			{"GET", "/queue;x=1", 404},
			{"GET", "/queue%3Bx=1", 404},
			{"GET", "/queue%00", 404},
			{"GET", "/queue%20", 404},
			{"GET", "/queue%3Fx", 404},
			{"GET", "/%2571ueue", 404},
			{"GET", "/./queue", 404},
			{"GET", "/x/../queue", 404},
			{"POST", "/x/%2e%2e/queue", 405},
			{"GET", "/queue%5C", 404},
			{"GET", "/%2Fqueue", 404},
			{"GET", "/hub/nope", 404},
			{"POST", "/hub/nope", 405},
			{"GET", "/internal/nope", 404},
			{"POST", "/internal/nope", 404},
			{"GET", "/queue/x", 404},
			{"GET", "/api/jobs/a/b", 404},
			{"GET", "/internal/logs/subscribe", 405},
			{"GET", "http:queue", 404},
			{"POST", "http:queue", 405},
		} {
			require.Equal(t, c.want, b.raw(c.method, c.target, "Content-Length: 0\r\nConnection: close\r\n"), "%s %s", c.method, c.target)
		}
	})
}

// Handlers and libraries see the same path that the router decided on.
func TestHandlersSeeTheCanonicalURL(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodGet, "/%61/b%2fc?x=1;2&x=3", nil)
	path, err := aiohttp.ReadPath(r.URL)
	require.NoError(t, err)
	out := api.WithPath(r, path)
	require.Equal(t, "/a/b/c", out.URL.Path)
	require.Equal(t, "/a/b%2Fc?x=1;2&x=3", out.URL.RequestURI())
	require.Equal(t, path, api.PathOf(out))
	require.Equal(t, "1;2", api.QueryOf(out).Get("x"))
	require.Equal(t, "/%61/b%2fc", r.URL.EscapedPath(), "the web server's own request is not touched")
}
