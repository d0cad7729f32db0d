package hub_test

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
	"github.com/comfyhub/comfyhub/internal/aiohttp/aiohttptest"
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/api/mount"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/hub"
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
}

// An id or a class whose escapes are no UTF-8 is one that nobody has, as for aiohttp, which
// leaves such escapes as they are.
func TestBrokenUTF8NamesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var instance *spy
		b := newBench(t, 0, func(b *bench) {
			instance = newSpy(t, newInstance(t, sim.Config{}))
			b.settings.Instances = []string{instance.URL}
		})
		for _, path := range []string{"/history/%E4", "/api/history/%e4%20x", "/object_info/%E4", "/api/object_info/a%FF"} {
			require.Equal(t, "{}", string(answered(read(t, b.send(exchange{method: "GET", path: path + "?" + mark})))(t, http.StatusOK, path)), path)
		}
		for _, path := range []string{"/history/%E4/x", "/history/", "/models/%E4", "/%E4", "/history/%E4%2f..", "/history/%E4%00"} {
			require.Equal(t, http.StatusNotFound, b.raw("GET", path+"?"+mark, ""), path)
		}
		require.Equal(t, http.StatusMethodNotAllowed, b.raw("POST", "/history/%E4?"+mark, "Content-Length: 0\r\n"))
		require.Empty(t, instance.all())
	})
}

// model is aiohttp's resolver, written from its source. Resources are indexed by the fixed
// beginning of their path. A path is looked up whole, then without its last segment, and so on, and
// the resources under one index are tried in order. A parameter is [^{}/]+, or .* where it takes
// the rest. It shares no code with the router that it is compared to.
type model struct {
	index map[string][]*resource
}

type resource struct {
	name    string
	match   *regexp.Regexp
	methods []string
}

// newModel contains the hub's own table, in the same order.
func newModel(t *api.Router) *model {
	m := &model{index: map[string][]*resource{}}
	for pattern, methods := range t.All() {
		name := pattern.String()
		fixed, _, dynamic := strings.Cut(name, "*")
		expression := regexp.QuoteMeta(name)
		expression = strings.ReplaceAll(expression, `\*\*`, "(.*)")
		expression = strings.ReplaceAll(expression, `\*`, "([^{}/]+)")
		res := &resource{name: name, match: regexp.MustCompile("^" + expression + "$")}
		for _, method := range methods {
			res.methods = append(res.methods, method)
			if method == http.MethodGet {
				res.methods = append(res.methods, http.MethodHead)
			}
		}
		key := name
		if dynamic {
			key = fixed[:strings.LastIndex(fixed, "/")]
		}
		if key = strings.TrimRight(key, "/"); key == "" {
			key = "/"
		}
		m.index[key] = append(m.index[key], res)
	}
	return m
}

var escape = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

// safe is yarl's path_safe for a path without broken escapes.
func safe(raw string) string {
	return escape.ReplaceAllStringFunc(raw, func(e string) string {
		if e = strings.ToUpper(e); e == "%2F" || e == "%25" {
			return e
		}
		plain, _ := url.PathUnescape(e)
		return plain
	})
}

func (m *model) resolve(method, path string) (name string, values, allowed []string) {
	for part := path; part != ""; {
		for _, res := range m.index[part] {
			found := res.match.FindStringSubmatch(path)
			if found == nil {
				continue
			}
			if !slices.Contains(res.methods, method) {
				allowed = append(allowed, res.methods...)
				continue
			}
			for _, v := range found[1:] {
				values = append(values, strings.ReplaceAll(strings.ReplaceAll(v, "%2F", "/"), "%25", "%"))
			}
			return res.name, values, nil
		}
		if part == "/" {
			break
		}
		if part = part[:strings.LastIndex(part, "/")]; part == "" {
			part = "/"
		}
	}
	slices.Sort(allowed)
	return "", nil, slices.Compact(allowed)
}

// FuzzRouter compares the hub's router with the model. If the hub finds no route
// and passes the request on, aiohttp must find none either.
func FuzzRouter(f *testing.F) {
	for _, row := range aiohttptest.Rows(f) {
		f.Add(row.Method, row.Target)
	}
	for _, path := range []string{"/%75pload/mas%6b", "/hub/file%73/x", "/api/assets/hash/blake3:0", "/history/{x}", "/api/etn/image/a%2Fb"} {
		f.Add(http.MethodHead, path)
		f.Add(http.MethodDelete, path)
	}
	server := mount.New(hub.New(config.Identity{}))
	named := &api.Router{} // the hub's table with handlers that report their name
	hit := ""
	for _, table := range server.Routers() {
		for pattern, methods := range table.All() {
			for _, method := range methods {
				named.Handle(method+" "+pattern.String(), func(http.ResponseWriter, *http.Request, api.Requester, []string) { hit = pattern.String() })
			}
		}
	}
	aio := newModel(named)
	f.Fuzz(func(t *testing.T, method, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return // net/http's server answers 400
		}
		p, err := aiohttp.ReadPath(u)
		if err != nil {
			return // refused, so passed on to nobody
		}
		raw, _, _ := strings.Cut(target, "?")
		if _, rest, absolute := strings.Cut(raw, "://"); absolute && !strings.HasPrefix(raw, "/") {
			raw = rest[strings.Index(rest, "/"):]
		}
		wantName, wantValues, wantAllowed := aio.resolve(method, safe(raw))
		handler, values, allowed := named.Find(method, p)
		hit = ""
		if handler != nil {
			handler(nil, nil, api.Requester{}, nil)
		}
		require.Equal(t, wantName, hit, target)
		require.Equal(t, wantValues, values, target)
		if slices.Contains(allowed, http.MethodGet) {
			allowed = append(allowed, http.MethodHead)
		}
		slices.Sort(allowed)
		require.Equal(t, wantAllowed, slices.Compact(allowed), target)
		if wantName != "" {
			require.True(t, named.Resembles(p), "a route of the hub is private in any case: %s", target)
		}
	})
}
