package comfyui

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
	"github.com/comfyhub/comfyhub/internal/aiohttp/aiohttptest"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// dangerous are request headers that say who a user is or where a request comes
// from, or that are orders to a server on the way.
var dangerous = []string{
	"Authorization", "Proxy-Authorization", "Cookie", "Cookie2", "X-Comfyhub-Tenant", "X-Comfyhub-Anything", "X-Api-Key", "X-Auth-Token",
	"X-Csrf-Token", "Comfy-User", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-User", "X-Real-Ip",
	"X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "X-Original-Url", "X-Rewrite-Url", "X-Http-Method-Override", "Via", "Origin", "Referer",
	"Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-User", "Sec-Ch-Ua", "Sec-Ch-Ua-Platform", "Remote-User", "X-Remote-User", "X-Webauth-User",
	"From", "Dnt", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Upgrade-Insecure-Requests", "X-Custom",
}

// treacherous are response headers by which an instance could reach beyond its
// answer.
var treacherous = []string{
	"Set-Cookie", "Set-Cookie2", "Www-Authenticate", "Proxy-Authenticate", "Proxy-Authorization", "Authorization", "Authentication-Info",
	"Server", "X-Powered-By", "Via", "X-Comfyhub-Tenant", "X-Comfyhub-Anything", "Clear-Site-Data", "Strict-Transport-Security", "Alt-Svc",
	"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Access-Control-Allow-Private-Network", "Service-Worker-Allowed",
	"Refresh", "Link", "Nel", "Report-To", "Reporting-Endpoints", "Origin-Agent-Cluster", "Public-Key-Pins", "X-Accel-Redirect",
	"X-Accel-Buffering", "X-Sendfile", "X-Lighttpd-Send-File", "X-Reproxy-Url", "Sourcemap", "X-Dns-Prefetch-Control", "Proxy-Connection",
	"Keep-Alive", "Speculation-Rules", "X-Custom",
}

// gate is an instance that notes what it is sent, and a front that forwards to
// it as the hub does.
type gate struct {
	front, instance *httptest.Server
	seen            chan *http.Request
}

func newGate(t *testing.T, answer http.HandlerFunc) *gate {
	t.Helper()
	g := &gate{seen: make(chan *http.Request, 4)}
	g.instance = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.seen <- r
		answer(w, r)
	}))
	t.Cleanup(g.instance.Close)
	client := newTestClient(t, g.instance.URL+"/prefix")
	g.front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, err := aiohttp.ReadPath(r.URL)
		if err != nil {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		client.Forward(w, r, path, nil, func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) })
	}))
	t.Cleanup(g.front.Close)
	return g
}

func (g *gate) do(t *testing.T, method, target string, header http.Header) *http.Response {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), method, g.front.URL+target, nil))(t)
	if header != nil {
		r.Header = header
	}
	// No transport of the standard library's own ideas of what to ask for.
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	resp := must.Get(transport.RoundTrip(r))(t)
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func TestHeadersThatPass(t *testing.T) {
	t.Parallel()
	g := newGate(t, func(w http.ResponseWriter, _ *http.Request) {
		// Interim answers and trailers, too, are ways around a list.
		w.Header().Set("Link", "</x>; rel=preload")
		w.Header().Set("Set-Cookie", "early=1")
		w.WriteHeader(http.StatusEarlyHints)
		for _, name := range slices.Concat(treacherous, toClient[:]) {
			w.Header().Set(name, "1")
		}
		for _, name := range []string{"Content-Encoding", "Content-Length", "Date"} {
			w.Header().Del(name)
		}
		w.Header().Set("Location", "/elsewhere")
		w.Header().Set("Trailer", "Set-Cookie2")
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, "body")
		w.Header().Set("Set-Cookie2", "late=1")
		w.Header().Set(http.TrailerPrefix+"Set-Cookie", "late=1")
	})
	header := http.Header{}
	for _, name := range slices.Concat(dangerous, toInstance[:]) {
		header.Set(name, "1")
	}
	header.Del("Content-Length")
	header.Set("User-Agent", "Mozilla/5.0 (a fingerprint)")
	resp := g.do(t, http.MethodGet, "/pack/x?x=1&token=secret", header)
	require.Equal(t, "body", string(must.Get(io.ReadAll(resp.Body))(t)))

	seen := <-g.seen
	require.Equal(t, "/prefix/pack/x?x=1", seen.RequestURI)
	for _, name := range dangerous {
		require.Empty(t, seen.Header.Values(name), "must not reach an instance: %s", name)
	}
	require.Equal(t, "ComfyHub", seen.Header.Get("User-Agent"))
	for name := range seen.Header {
		require.True(t, name == "User-Agent" || slices.Contains(toInstance[:], name), name)
	}
	for _, name := range toInstance {
		if name != "Content-Length" {
			require.Equal(t, "1", seen.Header.Get(name), "must reach an instance: %s", name)
		}
	}
	for _, name := range treacherous {
		require.Empty(t, resp.Header.Values(name), "must not come back: %s", name)
	}
	for _, name := range toClient {
		require.True(t, name == "Content-Encoding" || name == "Content-Length" || resp.Header.Get(name) != "", "must come back: %s", name)
	}
	for name := range resp.Header {
		require.Contains(t, toClient, name)
	}
	require.Empty(t, resp.Trailer)
}

// The interim answer of the test above is no part of an http.Response; here
// the bytes themselves are read.
func TestNoInterimAnswerPasses(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Set-Cookie", "early=1")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusTeapot)
	}))
	defer upstream.Close()
	interim := &countInterim{ResponseWriter: w}
	newTestClient(t, upstream.URL).Forward(interim, httptest.NewRequest(http.MethodGet, "/x", nil), aiohttp.MustPath("/x"), nil, nil)
	require.Equal(t, http.StatusTeapot, w.Code)
	require.Zero(t, interim.count)
	require.Empty(t, w.Header().Values("Set-Cookie"))
}

type countInterim struct {
	http.ResponseWriter
	count int
}

func (c *countInterim) WriteHeader(status int) {
	if status < 200 {
		c.count++
		return
	}
	c.ResponseWriter.WriteHeader(status)
}

func TestHeadersOfAWebSocket(t *testing.T) {
	t.Parallel()
	g := newGate(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Server", "secret")
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"v1"}})
		if err != nil {
			return
		}
		defer conn.CloseNow()
		kind, frame, err := conn.Read(r.Context())
		if err == nil {
			_ = conn.Write(r.Context(), kind, frame)
		}
	})
	conn, resp, err := websocket.Dial(t.Context(), g.front.URL+"/pack/ws?token=s&x=1", &websocket.DialOptions{
		Subprotocols: []string{"v1"},
		HTTPHeader:   http.Header{"Cookie": {"session=1"}, "Authorization": {"Bearer x"}, "Origin": {"http://x"}},
	})
	require.NoError(t, err)
	defer conn.CloseNow()
	require.Equal(t, "v1", conn.Subprotocol())
	seen := <-g.seen
	require.Equal(t, "/prefix/pack/ws?x=1", seen.RequestURI)
	for _, name := range []string{"Cookie", "Authorization", "Origin", "X-Forwarded-For"} {
		require.Empty(t, seen.Header.Values(name), name)
	}
	for _, name := range []string{"Set-Cookie", "Server"} {
		require.Empty(t, resp.Header.Values(name), name)
	}
	require.NoError(t, conn.Write(t.Context(), websocket.MessageText, []byte("hello")))
	_, frame, err := conn.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, "hello", string(frame))
}

// Other protocols than WebSocket would be a tunnel past the hub.
func TestNoOtherUpgrade(t *testing.T) {
	t.Parallel()
	g := newGate(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	resp := g.do(t, http.MethodGet, "/x", http.Header{"Connection": {"Upgrade, HTTP2-Settings"}, "Upgrade": {"h2c"}, "Http2-Settings": {"AAMAAABkAAQCAAAAAAIAAAAA"}})
	require.Equal(t, http.StatusTeapot, resp.StatusCode)
	seen := <-g.seen
	require.Empty(t, seen.Header.Values("Upgrade"))
	require.Empty(t, seen.Header.Values("Http2-Settings"))
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	for location, passes := range map[string]bool{
		"/login": true, "login?x=a:b": true, "../x": true, "/a//b": true, "?x": true,
		"http://10.0.0.5:8188/x": false, "//evil.example/": false, `/\evil.example`: false, "javascript:alert(1)": false, "HTTPS:x": false, "\t//x": false,
	} {
		require.Equal(t, passes, isLocal(location), location)
		h := forClient(http.StatusFound, http.Header{"Location": {location}})
		require.Equal(t, passes, h.Get("Location") != "", location)
	}
}

// What a client asks the hub to ask passes the same lists.
func TestHeadersOfTheHubsOwnCalls(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Cookie") != "" {
			w.WriteHeader(http.StatusTeapot)
		}
		for _, name := range treacherous {
			w.Header().Set(name, "1")
		}
		w.Header().Set("Etag", `"1"`)
	}))
	defer server.Close()
	c := newTestClient(t, server.URL)
	resp := must.Get(c.Ask(t.Context(), "/x", nil))(t)
	defer resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	for _, name := range treacherous {
		require.Empty(t, resp.Header.Values(name), name)
	}
	require.Equal(t, `"1"`, resp.Header.Get("Etag"))
	resp = must.Get(c.View(t.Context(), job.FileRef{Filename: "x"}, http.Header{"Cookie": {"x"}}))(t)
	resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

// An agent's proxy changes nothing of a path or a query: what the hub has sent
// is what the instance reads.
func TestPathsThroughAnAgent(t *testing.T) {
	t.Parallel()
	var seen string
	instance := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.RequestURI }))
	defer instance.Close()
	agent := httptest.NewServer(http.StripPrefix("/i/gpu", newTestClient(t, instance.URL).Proxy()))
	defer agent.Close()
	c := newTestClient(t, agent.URL+"/i/gpu")
	failed := func(_ http.ResponseWriter, _ *http.Request, err error) { t.Error(err) }
	count := 0
	for _, target := range recordedTargets(t) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			continue
		}
		path, err := aiohttp.ReadPath(u)
		if err != nil {
			continue
		}
		want := path.Escaped()
		if q := ForwardedQuery(u.RawQuery); q != "" {
			want += "?" + q
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL = u
		c.Forward(httptest.NewRecorder(), r, path, nil, failed)
		require.Equal(t, want, seen, target)
		count++
	}
	require.Greater(t, count, 500)
}

// recordedTargets are the odd targets that a real aiohttp was sent.
func recordedTargets(t *testing.T) (targets []string) {
	t.Helper()
	for _, row := range aiohttptest.Rows(t) {
		if !strings.Contains(row.Target, "//h") { // forms of a proxy's client
			targets = append(targets, row.Target)
		}
	}
	slices.Sort(targets)
	return slices.Compact(targets)
}
