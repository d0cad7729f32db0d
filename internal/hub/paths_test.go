package hub_test

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

	"github.com/comfyhub/comfyhub/internal/aiohttp/aiohttptest"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
	"github.com/comfyhub/comfyhub/system/network/loopback"
)

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
