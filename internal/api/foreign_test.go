package api_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/api/apitest"
	"github.com/comfyhub/comfyhub/internal/logs/logtest"
)

// site is a hub without routes: whoever it admits finds nothing.
type site struct{ *apitest.Server }

func newSite(t *testing.T, log *logtest.Log) site {
	t.Helper()
	return site{apitest.Serve(t, func(q *api.Requests) []api.Optional {
		q.Log = func() *slog.Logger { return slog.New(slog.NewTextHandler(log, nil)) }
		return nil
	})}
}

// ask makes a request as a page of an origin, as far as its browser tells.
func (s site) ask(method, path, host, origin, fetchSite string, v api.Visitor, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://hub"+path, strings.NewReader("{}"))
	r.Host, r.Header = host, header.Clone()
	if r.Header == nil {
		r.Header = http.Header{}
	}
	for name, value := range map[string]string{"Origin": origin, "Sec-Fetch-Site": fetchSite} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	w := httptest.NewRecorder()
	v.IP = "10.0.0.1"
	s.Serve(w, r, v)
	return w
}

// What ComfyUI answers is in the recordings. The hub also refuses pages of other sites where it is
// not at a loopback address, and says what to do: allow the site, or have the proxy pass the Host on.
func TestOrigins(t *testing.T) {
	t.Parallel()
	s := newSite(t, new(logtest.Log))
	for n, c := range []struct {
		host, origin, site string
		says               []string // "" for nothing
	}{
		{host: "127.0.0.1:8188", origin: "http://evil.example", says: []string{"foreign_origin", "proxy_set_header Host"}},
		{host: "localhost:8188", origin: "http://127.0.0.1:9", says: []string{"foreign_origin", "proxy_set_header Host"}},
		{host: "[::1]:8188", origin: "http://evil.example", site: "same-origin", says: []string{"foreign_origin", "proxy_set_header Host"}},
		{host: "10.1.2.3:8188", origin: "http://evil.example", says: []string{"foreign_origin", "`cors`"}},
		{host: "worker.invalid:8188", origin: "http://worker.invalid.evil.example:8188", says: []string{"foreign_origin", "`cors`"}},
		{host: "[fd00::1]:8188", origin: "http://[fd00::2]:8188", says: []string{"foreign_origin", "`cors`"}},
		{host: "10.1.2.3:8188", site: "cross-site", says: []string{""}},
		{host: "[fd00::1]:8188", origin: "http://[fd00::1]:8188"},
		{host: "worker.invalid:443", origin: "https://Worker.invalid"},
	} {
		w := s.ask("GET", "/prompt", c.host, c.origin, c.site, api.Visitor{}, nil)
		require.Equal(t, len(c.says) > 0, w.Code == http.StatusForbidden, "case %d: %d", n, w.Code)
		for _, want := range c.says {
			require.Contains(t, w.Body.String(), want, "case %d", n)
			require.Equal(t, want == "", w.Body.Len() == 0, "case %d", n)
		}
		require.Empty(t, w.Header().Get("Access-Control-Allow-Origin"))
	}
}

// A proxy on the same machine that does not pass the Host header on makes every page look
// foreign. The log says so, once.
func TestProxyWithoutTheHost(t *testing.T) {
	t.Parallel()
	heard := new(logtest.Log)
	s := newSite(t, heard)
	s.ask("POST", "/prompt", "127.0.0.1:8188", "https://evil.example", "cross-site", api.Visitor{}, nil)
	s.ask("POST", "/prompt", "10.1.2.3:8188", "https://hub.example", "same-origin", api.Visitor{}, nil)
	require.NotContains(t, heard.String(), "Host")
	for range 2 {
		s.ask("POST", "/prompt", "127.0.0.1:8188", "https://hub.example", "same-origin", api.Visitor{}, nil)
	}
	require.Equal(t, 1, strings.Count(heard.String(), "does not pass the Host header on"))
}

// A page of another site posts prompts, clears the history and opens sockets with the browser's
// login for the hub, whatever the path and however it is written. A form with text/plain needs no
// preflight.
func TestForeignPagesChangeNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, new(logtest.Log))
	for name, c := range map[string]struct {
		origin, site, cors string
		admitted           bool
	}{
		"a script":                              {admitted: true},
		"the hub's own page":                    {origin: "http://hub.lan:8188", admitted: true},
		"the hub's own page, told by Sec-Fetch": {origin: "http://hub.lan:8188", site: "same-origin", admitted: true},
		"the address bar":                       {site: "none", admitted: true},
		"behind a proxy with TLS":               {origin: "https://hub.lan", site: "same-origin", admitted: true},
		"another site":                          {origin: "http://evil.example"},
		"another site, told by Sec-Fetch":       {origin: "http://evil.example", site: "cross-site"},
		"another site that hides its Origin":    {site: "cross-site"},
		"a sibling":                             {origin: "http://blog.lan:8188"},
		"a sibling, told by Sec-Fetch":          {origin: "http://blog.lan:8188", site: "same-site"},
		"a sibling that hides its Origin":       {site: "same-site"},
		"another port of a host without one":    {origin: "http://hub.lan", site: "same-site"},
		"a sandboxed frame":                     {origin: "null"},
		"a local file":                          {origin: "file://"},
		"an app":                                {origin: "app://studio"},
		"an app that is allowed":                {origin: "app://studio", cors: "app://studio", admitted: true},
		"a site that is allowed":                {origin: "http://ui.example", site: "cross-site", cors: "http://ui.example", admitted: true},
		"the own page beside an allowed site":   {origin: "http://hub.lan:8188", cors: "http://ui.example", admitted: true},
		"a script beside an allowed site":       {cors: "http://ui.example", admitted: true},
		"another site than the allowed one":     {origin: "http://evil.example", cors: "http://ui.example"},
		"another, told by Sec-Fetch":            {origin: "http://evil.example", site: "cross-site", cors: "http://ui.example"},
		"a frame beside an allowed site":        {origin: "null", cors: "http://ui.example"},
		"any site":                              {origin: "http://evil.example", site: "cross-site", cors: "*", admitted: true},
		"any frame":                             {origin: "null", cors: "*", admitted: true},
	} {
		for _, request := range []string{
			"POST /api/prompt", "POST /%69nterrupt", "POST /some/node", "DELETE /userdata/a", "PATCH /internal/logs/subscribe", "GET /ws", "GET /some/socket",
		} {
			method, path, _ := strings.Cut(request, " ")
			header := http.Header{"Content-Type": {"text/plain"}}
			if method == "GET" {
				header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
			}
			w := s.ask(method, path, "hub.lan:8188", c.origin, c.site, api.Visitor{Tenant: "ada", CORS: c.cors}, header)
			require.Equal(t, !c.admitted, w.Code == http.StatusForbidden, "%s: %s: %d", name, request, w.Code)
		}
	}
}

// ComfyUI's web UI names its user in each request, also where its page comes from another site; and
// where there are keys, such a page may show one in either header.
func TestHeadersOfForeignPages(t *testing.T) {
	t.Parallel()
	s := newSite(t, new(logtest.Log))
	for _, c := range []struct {
		asked string
		keys  api.KeyPolicy
		want  string
	}{
		{"", api.KeysOff, "Content-Type, Authorization"},
		{"content-type", api.KeysOff, "Content-Type, Authorization"},
		{"comfy-user", api.KeysOff, "Content-Type, Authorization, Comfy-User"},
		{"Comfy-User,content-type", api.KeysOff, "Content-Type, Authorization, Comfy-User"},
		{"x-api-key", api.KeysOff, "Content-Type, Authorization"},
		{"x-api-key", api.KeysOptional, "Content-Type, Authorization, X-API-Key"},
	} {
		asks := http.Header{"Access-Control-Request-Headers": {c.asked}}
		w := s.ask("OPTIONS", "/queue", "hub", "http://ui.example", "", api.Visitor{Keys: c.keys, CORS: "http://ui.example"}, asks)
		require.Equal(t, c.want, w.Header().Get("Access-Control-Allow-Headers"), c.asked)
	}
}
