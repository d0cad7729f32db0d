package caddymodule_test

import (
	"bufio"
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/coder/websocket"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim/simtest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// script is a file of the web UI's build.
const script = "/assets/index-vtow2bzT.js"

// paged stands before the site's instance with what a simulated one lacks: a
// web UI, and a custom node that reports its progress as a stream. It says who
// it is, as aiohttp does.
func (s *site) paged(more <-chan struct{}) {
	s.instance = simtest.Front(s.t, s.instance, func(w http.ResponseWriter, r *http.Request, rest http.Handler) {
		w.Header().Set("Server", "Python/3.11 aiohttp/3.13.0")
		switch r.URL.Path {
		case script:
			w.Header().Set("Content-Type", "application/javascript")
			w.Header().Set("Cache-Control", "no-store")
			w.Header().Set("ETag", `"1"`)
			if r.Header.Get("If-None-Match") == `"1"` {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			_, _ = io.WriteString(w, strings.Repeat("comfy();", 10_000))
		case "/pack/progress":
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: 1\n\n")
			w.(http.Flusher).Flush()
			select {
			case <-more:
			case <-r.Context().Done():
			}
			_, _ = io.WriteString(w, "data: 2\n\n")
		default:
			rest.ServeHTTP(w, r)
		}
	}).URL
}

// root loads the Caddyfile at the root of the repository.
func (s *site) root() {
	s.t.Helper()
	text := must.Get(os.ReadFile("../Caddyfile"))(s.t)
	const hint = "# instance http://10.0.0.5:8188"
	require.Contains(s.t, string(text), hint)
	host, port, err := net.SplitHostPort(s.api)
	require.NoError(s.t, err)
	operatorsHost, operatorsPort, err := net.SplitHostPort(freeAddress(s.t))
	require.NoError(s.t, err)
	for name, value := range map[string]string{
		"COMFYHUB_OPERATORS_HOST": operatorsHost, "COMFYHUB_OPERATORS_PORT": operatorsPort,
		"COMFYHUB_ADMIN": s.admin, "COMFYHUB_ADDR_HOST": host, "COMFYHUB_ADDR_PORT": port, "COMFYHUB_GOSSIP": s.gossip, "COMFYHUB_DATA": s.data,
	} {
		s.t.Setenv(name, value)
	}
	lines := strings.NewReplacer(hint, "instance "+s.instance, "persist_config off", "persist_config off\nlog {\nlevel ERROR\n}").Replace(string(text))
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(lines), nil)
	require.NoError(s.t, err)
	require.NoError(s.t, caddy.Load(config, true))
	s.ready()
}

// ask sends a GET as a browser does and leaves the answer as it came.
func (s *site) ask(path string, header http.Header) *http.Response {
	s.t.Helper()
	r := must.Get(http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.api+path, nil))(s.t)
	r.Header = header
	transport := &http.Transport{DisableCompression: true}
	s.t.Cleanup(transport.CloseIdleConnections)
	response := must.Get(transport.RoundTrip(r))(s.t)
	s.t.Cleanup(func() { response.Body.Close() })
	require.Equal(s.t, []string{"Caddy"}, response.Header.Values("Server"), "%s: one server has answered", path)
	return response
}

// opened reads a body whatever it is encoded in.
func opened(t *testing.T, response *http.Response) string {
	t.Helper()
	var body io.Reader = response.Body
	var err error
	switch response.Header.Get("Content-Encoding") {
	case "zstd":
		body, err = zstd.NewReader(response.Body)
	case "gzip":
		body, err = gzip.NewReader(response.Body)
	}
	require.NoError(t, err)
	return string(must.Get(io.ReadAll(body))(t))
}

// The Caddyfile that comes with the hub compresses what browsers load, and
// nothing that must be passed on as it is.
func TestRootCaddyfileCompresses(t *testing.T) {
	s := newSite(t)
	more := make(chan struct{})
	s.paged(more)
	s.root()
	s.await(func() bool {
		status, _ := s.call(http.MethodGet, s.api, script, "")
		return status == http.StatusOK // the hub has connected to the instance
	})

	plain := opened(t, s.ask("/object_info", http.Header{}))
	for accepted, want := range map[string]string{"gzip, deflate": "gzip", "gzip, deflate, br, zstd": "zstd", "identity": ""} {
		accept := http.Header{"Accept-Encoding": {accepted}}
		for path, text := range map[string]string{script: strings.Repeat("comfy();", 10_000), "/object_info": plain} {
			answer := s.ask(path, accept)
			require.Equal(t, want, answer.Header.Get("Content-Encoding"), "%s %s", path, accepted)
			require.Contains(t, strings.Join(answer.Header.Values("Vary"), ", "), "Accept-Encoding", path)
			require.Equal(t, text, opened(t, answer), path)

			again := accept.Clone()
			again.Set("If-None-Match", answer.Header.Get("ETag"))
			require.NotEmpty(t, again.Get("If-None-Match"), path)
			require.Equal(t, http.StatusNotModified, s.ask(path, again).StatusCode, "%s %s", path, accepted)
		}
	}
	accept := http.Header{"Accept-Encoding": {"gzip, deflate, br, zstd"}}
	require.Equal(t, "public, max-age=31536000, immutable", s.ask(script, accept).Header.Get("Cache-Control"))

	// Pictures stay as they are, and can be read in parts.
	socket := s.dial("ann")
	socket.awaitEnd(s.prompt("ann", 0.01, 1))
	_, history := s.call(http.MethodGet, s.api, "/history", "")
	name := regexp.MustCompile(`"filename": "([^"]+)"`).FindStringSubmatch(history)
	require.NotNil(t, name, history)
	picture := "/view?type=temp&filename=" + name[1]
	whole := s.ask(picture, accept)
	require.Equal(t, http.StatusOK, whole.StatusCode)
	require.Empty(t, whole.Header.Get("Content-Encoding"))
	body := opened(t, whole)
	require.EqualValues(t, len(body), whole.ContentLength)
	ranged := accept.Clone()
	ranged.Set("Range", "bytes=1-3")
	part := s.ask(picture, ranged)
	require.Equal(t, http.StatusPartialContent, part.StatusCode)
	require.Equal(t, body[1:4], opened(t, part))

	// A stream is neither compressed nor held back until it has ended.
	stream := s.ask("/pack/progress", http.Header{"Accept-Encoding": {"gzip"}})
	require.Empty(t, stream.Header.Get("Content-Encoding"))
	lines := bufio.NewReader(stream.Body)
	require.Equal(t, "data: 1\n", must.Get(lines.ReadString('\n'))(t))
	close(more)
	require.Equal(t, "\ndata: 2\n\n", string(must.Get(io.ReadAll(lines))(t)))

	conn, response, err := websocket.Dial(t.Context(), "http://"+s.api+"/ws?clientId=bob", &websocket.DialOptions{HTTPHeader: accept})
	require.NoError(t, err)
	defer conn.CloseNow()
	require.Empty(t, response.Header.Get("Content-Encoding"))
	require.Equal(t, []string{"Caddy"}, response.Header.Values("Server"))
	_, frame, err := conn.Read(t.Context())
	require.NoError(t, err)
	require.Contains(t, string(frame), `"type": "status"`)
}

// A page on the web has its own name resolved to the hub's private address (DNS
// rebinding). It is of one origin with the hub then, so only its name tells.
func TestRebinding(t *testing.T) {
	s := newSite(t)
	other := freeAddress(t)
	_, port, err := net.SplitHostPort(other)
	require.NoError(t, err)
	site := func(words string) string {
		return "http://ui.example:" + port + " {\nbind 127.0.0.1\ncomfyhub\n}\nhttp://:" + port + " {\nbind 127.0.0.1\n" + words + "\n}\n"
	}
	s.start("")
	require.NoError(t, s.load("", site("comfyhub {\nhosts hub.corp.example\n}")))
	ask := func(address, host, origin string) (int, string) {
		t.Helper()
		status, body := 0, ""
		s.await(func() bool {
			r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/queue", strings.NewReader(`{"clear": true}`)))(t)
			r.Host, r.Close = host, true
			if origin != "" {
				r.Header.Set("Origin", origin)
			}
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				return false // during a reload, see call
			}
			defer response.Body.Close()
			answer := must.Get(io.ReadAll(response.Body))(t)
			status, body = response.StatusCode, string(answer)
			return true
		})
		return status, body
	}
	_, listening, err := net.SplitHostPort(s.api)
	require.NoError(t, err)
	for host, want := range map[string]int{
		s.api: 200, "localhost:" + listening: 200, "comfyhub:8188": 200, "hub.lan": 200, "10.9.8.7": 200,
		"evil.example": 403, "evil.example:" + listening: 403, "ui.example": 403,
	} {
		status, body := ask(s.api, host, "http://"+host)
		require.Equal(t, want, status, host)
		if want == http.StatusForbidden {
			require.Contains(t, body, "`hosts`", "the word that allows it is named")
		}
	}
	for host, want := range map[string]int{
		other: 200, "hub.corp.example": 200, "hub.corp.example:8188": 200, "ui.example:" + port: 200, "evil.example": 403, "www.corp.example": 403,
	} {
		status, _ := ask(other, host, "")
		require.Equal(t, want, status, host)
	}
	require.NoError(t, s.load("", site("comfyhub {\nhosts *\n}")))
	status, _ := ask(other, "evil.example", "http://evil.example")
	require.Equal(t, http.StatusOK, status)
}
