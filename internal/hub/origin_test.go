package hub

import (
	"cmp"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/logs/logtest"
)

// Each row holds what a real server answered at 127.0.0.1 and a port, except the
// rows marked "hub", where it answered 200.
func TestOrigins(t *testing.T) {
	inBench(t, benchOf(0), func(t *testing.T, b *bench) {
		const here, port = "127.0.0.1:8188", "8188"
		for n, c := range []struct {
			host, origin, site string
			status             int
			hub                bool
			proxy              bool // the hub says what a proxy may have left out; ComfyUI says nothing
		}{
			{status: 200},
			{origin: "http://" + here, status: 200},
			{origin: "https://" + here, status: 200},
			{origin: "http://127.0.0.1", status: 200},
			{origin: "null", status: 200},
			{origin: "http://evil.example", status: 403, proxy: true},
			{origin: "http://127.0.0.1:9", status: 403, proxy: true},
			{origin: "http://localhost:" + port, status: 403, proxy: true},
			{host: "127.0.0.1", origin: "http://127.0.0.1:9", status: 200},
			{host: "10.1.2.3:8188", origin: "http://evil.example", status: 403, hub: true},
			{host: "worker.invalid:8188", origin: "http://evil.example", status: 403, hub: true},
			{host: "worker.invalid:8188", origin: "http://worker.invalid:8189", status: 403, hub: true},
			{host: "worker.invalid:8188", origin: "http://worker.invalid.evil.example:8188", status: 403, hub: true},
			{host: "worker.invalid:8188", origin: "http://Worker.invalid:8188", status: 200},
			{host: "worker.invalid", origin: "https://worker.invalid", status: 200},
			{host: "worker.invalid:443", origin: "https://worker.invalid", status: 200},
			{host: "[fd00::1]:8188", origin: "http://[fd00::1]:8188", status: 200},
			{host: "[fd00::1]:8188", origin: "http://[fd00::2]:8188", status: 403, hub: true},
			{host: "localhost:" + port, origin: "http://evil.example", status: 403, proxy: true},
			{host: "[::1]:" + port, origin: "http://evil.example", status: 403, proxy: true},
			{host: "evil.example", status: 200},
			{site: "cross-site", status: 403},
			{site: "same-site", status: 200},
			{site: "same-origin", status: 200},
			{site: "none", status: 200},
			{site: "Cross-Site", status: 200},
			{site: "cross-site", origin: "http://" + here, status: 403},
			{host: "10.1.2.3:8188", site: "cross-site", status: 403},
			{site: "same-origin", origin: "http://evil.example", status: 403, proxy: true},
		} {
			for _, method := range []string{"GET", "OPTIONS"} {
				resp := b.send(exchange{method: method, path: "/prompt", header: headers("Host", cmp.Or(c.host, here), "Origin", c.origin, "Sec-Fetch-Site", c.site)})
				status, body := read(t, resp)
				require.Equal(t, c.status, status, "case %d: %s %+v", n, method, c)
				switch {
				case c.hub:
					require.Contains(t, string(body), "foreign_origin")
					require.Contains(t, string(body), "`cors`", "the word that allows it is named")
				case c.proxy:
					require.Contains(t, string(body), "foreign_origin")
					require.Contains(t, string(body), "proxy_set_header Host")
				case status == http.StatusForbidden || method == "OPTIONS":
					require.Empty(t, body)
					require.Empty(t, resp.Header.Get("Content-Type"))
				}
				require.Empty(t, resp.Header.Get("Access-Control-Allow-Origin"))
			}
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

func TestCORS(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := versioned(t, "0.33.0")
		b.cors = "http://ui.example"
		for n, c := range []struct {
			exchange
			shown bool
		}{
			{exchange{method: "GET", path: "/prompt", status: 200}, true},
			{exchange{method: "GET", path: "/prompt", header: map[string]string{"Origin": "http://evil.example"}, status: 200}, true},
			{exchange{method: "GET", path: "/prompt", header: map[string]string{"Sec-Fetch-Site": "cross-site"}, status: 200}, true},
			{exchange{method: "OPTIONS", path: "/prompt", header: map[string]string{"Origin": "http://ui.example", "Access-Control-Request-Method": "POST"}, status: 200}, true},
			{exchange{method: "OPTIONS", path: "/nope", status: 200}, true},
			{exchange{method: "GET", path: "/nope", status: 404}, true},
			{exchange{method: "GET", path: "/i18n", status: 200}, true},
			{exchange{method: "GET", path: "/interrupt", status: 404}, true},
			{exchange{method: "PUT", path: "/prompt", status: 405}, false},
			{exchange{method: "POST", path: "/prompt", body: "x", status: 500}, false},
		} {
			resp := b.send(c.exchange)
			status, _ := read(t, resp)
			require.Equal(t, c.status, status, "case %d", n)
			want := http.Header{}
			if c.shown {
				want = http.Header{
					"Access-Control-Allow-Origin":      {"http://ui.example"},
					"Access-Control-Allow-Methods":     {"POST, GET, DELETE, PUT, OPTIONS, PATCH"},
					"Access-Control-Allow-Headers":     {"Content-Type, Authorization"},
					"Access-Control-Allow-Credentials": {"true"},
				}
			}
			got := http.Header{}
			for key, values := range resp.Header {
				if strings.HasPrefix(key, "Access-Control-") {
					got[key] = values
				}
			}
			require.Equal(t, want, got, "case %d", n)
		}
		_, resp, err := websocket.Dial(t.Context(), b.web.URL+"/ws", &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"http://evil.example"}}})
		require.Error(t, err, "a browser lets any page read a socket")
		require.Equal(t, http.StatusForbidden, resp.StatusCode)
		conn, _, err := websocket.Dial(t.Context(), b.web.URL+"/ws", &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"http://ui.example"}}})
		require.NoError(t, err)
		_, frame, err := conn.Read(t.Context())
		require.NoError(t, err)
		require.Contains(t, string(frame), `"sid"`)
		require.NoError(t, conn.CloseNow())
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
