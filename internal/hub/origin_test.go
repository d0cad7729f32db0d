package hub_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/logs/logtest"
)

// What ComfyUI answers is in the recordings. The hub also refuses pages of other sites where it is
// not at a loopback address, and says what to do: allow the site, or have the proxy pass the Host on.
func TestOrigins(t *testing.T) {
	inBench(t, benchOf(0), func(t *testing.T, b *bench) {
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
			resp := b.send(exchange{method: "GET", path: "/prompt", header: headers("Host", c.host, "Origin", c.origin, "Sec-Fetch-Site", c.site)})
			status, body := read(t, resp)
			require.Equal(t, len(c.says) > 0, status == http.StatusForbidden, "case %d: %d", n, status)
			for _, want := range c.says {
				require.Contains(t, string(body), want, "case %d", n)
				require.Equal(t, want == "", len(body) == 0, "case %d", n)
			}
			require.Empty(t, resp.Header.Get("Access-Control-Allow-Origin"))
		}
	})
}

// A proxy on the same machine that does not pass the Host header on makes every page look
// foreign. The log says so, once.
func TestProxyWithoutTheHost(t *testing.T) {
	heard := new(logtest.Log)
	inBench(t, benchOf(0, func(b *bench) { b.log = heard }), func(t *testing.T, b *bench) {
		post := func(host, origin, site string) {
			b.send(exchange{method: "POST", path: "/prompt", header: headers("Host", host, "Origin", origin, "Sec-Fetch-Site", site)}).Body.Close()
		}
		post("127.0.0.1:8188", "https://evil.example", "cross-site")
		post("10.1.2.3:8188", "https://hub.example", "same-origin")
		require.NotContains(t, heard.String(), "Host")
		for range 2 {
			post("127.0.0.1:8188", "https://hub.example", "same-origin")
		}
		require.Equal(t, 1, strings.Count(heard.String(), "does not pass the Host header on"))
	})
}

// headers builds a request's headers from names and values, leaving out empty ones.
func headers(pairs ...string) map[string]string {
	header := map[string]string{}
	for n := 0; n < len(pairs); n += 2 {
		if pairs[n+1] != "" {
			header[pairs[n]] = pairs[n+1]
		}
	}
	return header
}

// A page of another site posts prompts, clears the history and opens sockets with
// the browser's login for the hub. A form with text/plain needs no preflight.
func TestForeignPagesChangeNothing(t *testing.T) {
	inBench(t, benchOf(0, func(b *bench) { b.settings.Passthrough = config.PassthroughOn }), func(t *testing.T, b *bench) {
		b.tenant = "ada"
		const lan = "hub.lan:8188"
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
			b.cors = c.cors
			for _, step := range []exchange{
				{method: "POST", path: "/api/prompt", body: `{"prompt": {}}`},
				{method: "POST", path: "/history", body: `{"clear": true}`},
				{method: "POST", path: "/queue", body: `{"clear": true}`},
				{method: "POST", path: "/%69nterrupt"},
				{method: "POST", path: "/free", body: "{}"},
				{method: "DELETE", path: "/userdata/a"},
				{method: "PATCH", path: "/internal/logs/subscribe", body: `{"enabled": false}`},
				{method: "POST", path: "/hub/explain", body: "{}"},
				{method: "POST", path: "/some/node"},
				{method: "POST", path: "/submit", body: `{"workflow": {}}`},
				{method: "POST", path: "/hub/v1/submit", body: `{"workflow": {}}`},
				{method: "POST", path: "/cancel/x"},
				{method: "POST", path: "/sdapi/v1/txt2img", body: "{}"},
				{method: "POST", path: "/%73dapi/v1/interrupt"},
			} {
				step.header = headers("Host", lan, "Origin", c.origin, "Sec-Fetch-Site", c.site, "Content-Type", "text/plain")
				status, _ := read(t, b.send(step))
				require.Equal(t, !c.admitted, status == http.StatusForbidden, "%s: %s %s: %d", name, step.method, step.path, status)
			}
			for _, path := range []string{"/ws?clientId=x", "/api/ws", "/some/socket"} {
				// Not Dial, which writes its own Host.
				header := headers("Host", lan, "Origin", c.origin, "Sec-Fetch-Site", c.site, "Connection", "Upgrade", "Upgrade", "websocket",
					"Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==")
				resp := b.send(exchange{method: "GET", path: path, header: header})
				require.NoError(t, resp.Body.Close())
				require.Equal(t, !c.admitted, resp.StatusCode == http.StatusForbidden, "%s: %s: %d", name, path, resp.StatusCode)
			}
		}
	})
}

func TestPlainRequestsOfTheSocket(t *testing.T) {
	inBench(t, benchOf(0), func(t *testing.T, b *bench) {
		const text = "No WebSocket UPGRADE hdr: None\n Can \"Upgrade\" only to \"WebSocket\"."
		b.play([]exchange{
			{method: "GET", path: "/ws", status: 400, want: text},
			{method: "GET", path: "/api/ws?clientId=x", status: 400, want: text},
			{method: "GET", path: "/ws", header: map[string]string{"Upgrade": "h2c"}, status: 400, want: strings.Replace(text, "None", "h2c", 1)},
			{method: "POST", path: "/ws", body: "{}", status: 405, want: "405: Method Not Allowed"},
		})
	})
}

// ComfyUI's web UI names its user in each request, also where its page comes from another site; and
// where there are keys, such a page may show one in either header.
func TestHeadersOfForeignPages(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
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
			asks := http.Header{"Origin": {"http://ui.example"}, "Access-Control-Request-Headers": {c.asked}}
			w := b.call("OPTIONS", "/queue", "", asks, api.Visitor{Keys: c.keys, CORS: "http://ui.example"})
			require.Equal(t, c.want, w.Header().Get("Access-Control-Allow-Headers"), c.asked)
		}
	})
}
