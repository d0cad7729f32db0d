package mount

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/apikeys"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/hub"
)

// walked is a hub whose routes do nothing but note who asks.
type walked struct {
	API

	admin string
	asked *api.Requester
}

func newWalked(t *testing.T) *walked {
	t.Helper()
	h := hub.New(config.Identity{Redis: "embedded", Data: t.TempDir(), GossipBind: "127.0.0.1:0"})
	t.Cleanup(func() { require.NoError(t, h.Close(context.Background())) })
	s := &walked{API: New(h)}
	require.NoError(t, h.Start(t.Context(), config.Settings{Logger: slog.New(slog.DiscardHandler), Operators: []string{"root"}}))
	var err error
	_, s.admin, err = h.Keys.Add(t.Context(), apikeys.Wanted{Name: "boss", Scopes: []apikeys.Scope{apikeys.Admin}})
	require.NoError(t, err)
	for _, router := range s.Routers() {
		for pattern, methods := range router.All() {
			for _, method := range methods {
				router.Handle(method+" "+pattern.String(), func(_ http.ResponseWriter, _ *http.Request, a api.Requester, _ []string) { s.asked = &a })
			}
		}
	}
	return s
}

// ask makes a request, and returns whom a route has met, nil if it met nobody.
func (s *walked) ask(t *testing.T, method, path string, header http.Header, v api.Visitor) (*api.Requester, *httptest.ResponseRecorder) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://hub.lan:8188"+path, strings.NewReader("{}"))
	r.Header = header.Clone()
	v.IP, s.asked = "10.0.0.1", nil
	w := httptest.NewRecorder()
	s.Serve(w, r, v)
	return s.asked, w
}

// logins are the ways in which an operator comes in.
func (s *walked) logins() map[string]struct {
	header  http.Header
	visitor api.Visitor
	given   bool // by a script that has the key, never by a browser
} {
	password := &http.Request{Header: http.Header{}}
	password.SetBasicAuth("me", s.admin)
	type login = struct {
		header  http.Header
		visitor api.Visitor
		given   bool
	}
	return map[string]login{
		"a login of Caddy's":   {http.Header{}, api.Visitor{Tenant: "root", Identified: true}, false},
		"a key as a password":  {password.Header, api.Visitor{Keys: api.KeysRequired}, false},
		"a key, and its login": {http.Header{"Authorization": {"Bearer " + s.admin}}, api.Visitor{Tenant: "root", Identified: true, Keys: api.KeysOptional}, true},
		"a key":                {http.Header{"Authorization": {"Bearer " + s.admin}}, api.Visitor{Keys: api.KeysRequired}, true},
		"a key's scheme in lower case": {
			http.Header{"Authorization": {"bearer " + s.admin}}, api.Visitor{Keys: api.KeysRequired}, true,
		},
		// Without keys the header is somebody else's.
		"a word like a key": {http.Header{"Authorization": {"Bearer " + s.admin}}, api.Visitor{Tenant: "root", Identified: true}, false},
	}
}

// pages are what browsers say of requests that a script of ComfyUI's page makes: over TLS and
// on loopback, over plain HTTP, without a referrer, and behind proxies that drop some of it.
var pages = map[string]http.Header{
	"all":            {"Origin": {"http://hub.lan:8188"}, "Sec-Fetch-Site": {"same-origin"}, "Sec-Fetch-Mode": {"cors"}, "Cookie": {"comfyhub_browser=1"}},
	"plain HTTP":     {"Origin": {"http://hub.lan:8188"}},
	"a frame":        {"Origin": {"null"}},
	"site":           {"Sec-Fetch-Site": {"same-origin"}},
	"none":           {"Sec-Fetch-Site": {"none"}},
	"dest":           {"Sec-Fetch-Dest": {"empty"}},
	"a referrer":     {"Referer": {"http://hub.lan:8188/"}},
	"a cookie":       {"Cookie": {"session=1"}},
	"an empty value": {"Origin": {""}},
}

// node is what a program says that calls fetch of Node.
var node = http.Header{"Accept": {"*/*"}, "Accept-Language": {"*"}, "Sec-Fetch-Mode": {"cors"}, "User-Agent": {"node"}}

// reading are the routes that change nothing though their method is none for reading. A route
// is a change unless it is here.
var reading = []string{"POST /hub/explain"}

// No route that changes something, of whatever room, meets an operator if a page of ComfyUI's
// site may have made the request; programs, keys that a browser does not send by itself, and
// the operators' site meet one.
func TestPagesHaveNoOperatorsPower(t *testing.T) {
	t.Parallel()
	s := newWalked(t)
	met := 0
	for _, router := range s.Routers() {
		for pattern, methods := range router.All() {
			path := strings.NewReplacer("**", "x", "*", "x").Replace(pattern.String())
			for _, method := range methods {
				reads := method == http.MethodGet || slices.Contains(reading, method+" "+pattern.String())
				for login, by := range s.logins() {
					about := method + " " + path + ", " + login
					a, _ := s.ask(t, method, path, by.header, by.visitor)
					if a == nil || by.visitor.Keys != api.KeysOff && a.Key == "" {
						continue // the room is off, or the route asks for no key
					}
					require.True(t, a.Operator, "%s: a program", about)
					met++
					program := node.Clone()
					program["Authorization"] = by.header["Authorization"]
					a, _ = s.ask(t, method, path, program, by.visitor)
					require.True(t, a.Operator, "%s: a program of Node", about)
					for page, header := range pages {
						if header.Get("Origin") == "null" && method != http.MethodGet {
							continue // refused before any route
						}
						header = header.Clone()
						header["Authorization"] = by.header["Authorization"]
						if a, _ := s.ask(t, method, path, header, by.visitor); a != nil {
							require.Equal(t, reads || by.given, a.Operator, "%s: a page: %s", about, page)
							require.Equal(t, !a.Operator, a.Elsewhere, about)
							met++
						}
					}
				}
			}
		}
	}
	require.Greater(t, met, 5000)
}

// The operators' site has the hub's own calls and pages, for operators and no page but its own.
func TestOperatorsSiteHasNothingOfComfyUI(t *testing.T) {
	t.Parallel()
	s := newWalked(t)
	own := s.Routers()[0]
	assets := []string{"/hub", "/hub/", "/hub/page/*"}
	operator := api.Visitor{Tenant: "root", Identified: true, OperatorsSite: true}
	page := http.Header{"Origin": {"http://hub.lan:8188"}, "Sec-Fetch-Site": {"same-origin"}, "Cookie": {"comfyhub_browser=1"}}
	for _, router := range s.Routers() {
		for pattern, methods := range router.All() {
			path := strings.NewReplacer("**", "x", "*", "x").Replace(pattern.String())
			open := pattern.String() == "/hub/files/*" || pattern.String() == "/hub/tunnel"
			for _, method := range methods {
				about := method + " " + path
				a, w := s.ask(t, method, path, page, operator)
				if router != own || open && (method == http.MethodGet || pattern.String() == "/hub/tunnel") {
					require.Nil(t, a, about)
					require.Contains(t, []int{http.StatusNotFound, http.StatusPermanentRedirect}, w.Code, about)
					continue
				}
				require.NotNil(t, a, about)
				require.True(t, a.Operator && a.OperatorsSite && !a.Elsewhere, about)
				// Nobody else is let in, with a login or without one.
				for _, v := range []api.Visitor{{Tenant: "ada", Identified: true, OperatorsSite: true}, {OperatorsSite: true}, {OperatorsSite: true, Keys: api.KeysOptional}} {
					a, w := s.ask(t, method, path, page, v)
					if slices.Contains(assets, pattern.String()) {
						continue
					}
					require.Nil(t, a, about)
					require.Equal(t, map[bool]int{true: http.StatusForbidden, false: http.StatusUnauthorized}[v.Keys == api.KeysOff], w.Code, about)
				}
				// No other page, though it has the login.
				for _, header := range []http.Header{
					{"Origin": {"http://hub.lan:8189"}},
					{"Origin": {"http://hub.lan"}},
					{"Origin": {"null"}},
					{"Origin": {"http://evil.example"}},
					{"Sec-Fetch-Site": {"same-site"}},
					{"Sec-Fetch-Site": {"cross-site"}},
					{"Sec-Fetch-Site": {"same-site"}, "Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"iframe"}},
					{"Origin": {"http://hub.lan:8189"}, "Sec-Fetch-Site": {"same-site"}, "Sec-Fetch-Mode": {"cors"}},
				} {
					v := operator
					v.CORS = "*"
					a, w := s.ask(t, method, path, header, v)
					require.Nil(t, a, "%s %v", about, header)
					require.Equal(t, http.StatusForbidden, w.Code, "%s %v", about, header)
					require.Equal(t, "DENY", w.Header().Get("X-Frame-Options"))
					require.Empty(t, w.Header().Get("Access-Control-Allow-Origin"))
				}
			}
		}
	}
	for path, status := range map[string]int{"/": 308, "/index.html": 404, "/extensions/x.js": 404, "/some/custom/node": 404, "/hub/v1/submit": 404, "/ws": 404} {
		a, w := s.ask(t, http.MethodGet, path, http.Header{}, operator)
		require.Nil(t, a, path)
		require.Equal(t, status, w.Code, path)
	}
	// A link leads there.
	a, _ := s.ask(t, http.MethodGet, "/hub/", http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"document"}}, operator)
	require.NotNil(t, a)
}
