package hub

import (
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// What a real server answered to each, at 127.0.0.1 and a port.
func TestOrigins(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	here := strings.TrimPrefix(b.web.URL, "http://")
	_, port, _ := strings.Cut(here, ":")
	for n, c := range []struct {
		host, origin, site string
		status             int
	}{
		{status: 200},
		{origin: "http://" + here, status: 200},
		{origin: "https://" + here, status: 200},
		{origin: "http://127.0.0.1", status: 200},
		{origin: "null", status: 200},
		{origin: "http://evil.example", status: 403},
		{origin: "http://127.0.0.1:9", status: 403},
		{origin: "http://localhost:" + port, status: 403},
		{host: "127.0.0.1", origin: "http://127.0.0.1:9", status: 200},
		{host: "10.1.2.3:8188", origin: "http://evil.example", status: 200},
		{host: "worker.invalid:8188", origin: "http://evil.example", status: 200},
		{host: "localhost:" + port, origin: "http://evil.example", status: 403},
		{host: "[::1]:" + port, origin: "http://evil.example", status: 403},
		{host: "evil.example", status: 200},
		{site: "cross-site", status: 403},
		{site: "same-site", status: 200},
		{site: "same-origin", status: 200},
		{site: "none", status: 200},
		{site: "Cross-Site", status: 200},
		{site: "cross-site", origin: "http://" + here, status: 403},
		{host: "10.1.2.3:8188", site: "cross-site", status: 403},
		{site: "same-origin", origin: "http://evil.example", status: 403},
	} {
		header := map[string]string{}
		for key, value := range map[string]string{"Host": c.host, "Origin": c.origin, "Sec-Fetch-Site": c.site} {
			if value != "" {
				header[key] = value
			}
		}
		for _, method := range []string{"GET", "OPTIONS"} {
			resp := b.send(exchange{method: method, path: "/prompt", header: header})
			status, body := read(t, resp)
			require.Equal(t, c.status, status, "case %d: %s %+v", n, method, c)
			if status == http.StatusForbidden || method == "OPTIONS" {
				require.Empty(t, body)
				require.Empty(t, resp.Header.Get("Content-Type"))
			}
			require.Empty(t, resp.Header.Get("Access-Control-Allow-Origin"))
		}
	}

	for origin, want := range map[string]int{"http://evil.example": 403, "http://" + here: 101} {
		conn, resp, err := websocket.Dial(t.Context(), b.web.URL+"/ws", &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {origin}}})
		require.Equal(t, want, resp.StatusCode, origin)
		if err == nil {
			require.NoError(t, conn.CloseNow())
		}
	}
}

func TestPlainRequestsOfTheSocket(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	const text = "No WebSocket UPGRADE hdr: None\n Can \"Upgrade\" only to \"WebSocket\"."
	b.play([]exchange{
		{method: "GET", path: "/ws", status: 400, want: text},
		{method: "GET", path: "/api/ws?clientId=x", status: 400, want: text},
		{method: "GET", path: "/ws", header: map[string]string{"Upgrade": "h2c"}, status: 400, want: strings.Replace(text, "None", "h2c", 1)},
		{method: "POST", path: "/ws", body: "{}", status: 405, want: "405: Method Not Allowed"},
	})
}

func TestCORS(t *testing.T) {
	t.Parallel()
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
	conn, _, err := websocket.Dial(t.Context(), b.web.URL+"/ws", &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"http://evil.example"}}})
	require.NoError(t, err, "sockets of other sites are let in")
	_, frame, err := conn.Read(t.Context())
	require.NoError(t, err)
	require.Contains(t, string(frame), `"sid"`)
	require.NoError(t, conn.CloseNow())
}
