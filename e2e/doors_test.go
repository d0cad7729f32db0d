package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// secret is in a prompt of the worker and nowhere else.
const secret = "the-worker's-secret"

// raw sends a request line as it is; Go's client would clean it.
func (f *fleet) raw(t *testing.T, user, method, target string, header map[string]string) (int, string) {
	t.Helper()
	conn, err := net.Dial("tcp", f.Addr)
	require.NoError(t, err)
	defer conn.Close()
	r, err := http.NewRequest(method, f.URL("/"), http.NoBody)
	require.NoError(t, err)
	host := f.Addr
	var lines strings.Builder
	for name, value := range header {
		if name == "Host" {
			host = value
			continue
		}
		fmt.Fprintf(&lines, "%s: %s\r\n", name, value)
	}
	if user != "" {
		r.SetBasicAuth(user, password)
		fmt.Fprintf(&lines, "Authorization: %s\r\n", r.Header.Get("Authorization"))
	}
	_, err = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%sContent-Length: 2\r\n\r\n{}", method, target, host, lines.String())
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), r)
	require.NoError(t, err, "%s %s", method, target)
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return resp.StatusCode, ""
	}
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

// The doors that attacks on a running hub once opened stay shut: paths that an
// instance reads differently from the hub, pages of other sites, names that
// were rebound, and calls that change machines.
func TestDoors(t *testing.T) {
	f := siege(t, "")
	body := fmt.Sprintf(`{"prompt_id": "private", "client_id": "worker", "extra_data": {"note": %q, "api_key_comfy_org": %q}, "prompt": {
		"1": {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 1}},
		"2": {"class_type": "SimulatedWork", "inputs": {"image": ["1", 0], "seconds": 3600, "steps": 10000, "nonce": 1}},
		"3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "x"}}}}`, secret, secret)
	code, answer, err := f.as(t.Context(), worker, http.MethodPost, "/prompt", nil, strings.NewReader(body))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, code, string(answer))
	running := func() bool {
		_, answer, err := f.as(t.Context(), worker, http.MethodGet, "/hub/jobs/private", nil, nil)
		var j struct {
			Status  string
			Started float64 `json:"started_at"`
		}
		return err == nil && json.Unmarshal(answer, &j) == nil && j.Status == "running" && j.Started > 0
	}
	f.eventually(running, "the job runs")

	upgrade := map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}
	with := func(header map[string]string, name, value string) map[string]string {
		out := maps.Clone(header)
		out[name] = value
		return out
	}
	t.Run("paths", func(t *testing.T) {
		for _, path := range []string{
			"/%71ueue", "/%61pi/queue", "/api/%71ueue", "/%68istory", "/%76iew?filename=x_00001_.png", "/%61pi/%6aobs", "/%70rompt",
			"//queue", "/api//queue", "/QUEUE", "/Queue", "/queue/", "/queue;x", "/queue%00", "/queue%3Fx", "/./queue", "/x/../queue", "/x/%2e%2e/queue",
			"/%2571ueue", "/%2fqueue", "/x/..%2fqueue", `/x\..\queue`, "/x/..%5cqueue", "/internal/%6cogs", "/internal/logs/raw", "/%69nternal/logs/raw",
			"/%75serdata?dir=.", "/%69nterrupt", "/%75pload/image", "/%66ree", "/api/%69nterrupt", "//interrupt", "/interrupt/", "/api//interrupt",
		} {
			for _, method := range []string{"GET", "POST", "DELETE"} {
				code, answer := f.raw(t, attacker, method, path, nil)
				require.NotContains(t, answer, secret, "%s %s: %d", method, path, code)
				require.NotContains(t, answer, "private", "%s %s: %d", method, path, code)
			}
		}
		require.True(t, running(), "nobody has stopped it")
	})
	t.Run("other sites", func(t *testing.T) {
		for _, header := range []map[string]string{
			{"Origin": "http://evil.example"},
			{"Origin": "https://evil.example"},
			{"Origin": "null"},
			{"Origin": "http://" + f.Addr + ".evil.example"},
			{"Sec-Fetch-Site": "cross-site"},
		} {
			for _, call := range [][2]string{
				{"POST", "/prompt"},
				{"POST", "/queue"},
				{"POST", "/history"},
				{"POST", "/interrupt"},
				{"POST", "/free"},
				{"POST", "/upload/image"},
				{"DELETE", "/userdata/x"},
				{"POST", "/hub/jobs/private/cancel"},
			} {
				code, answer := f.raw(t, worker, call[0], call[1], header)
				require.Equal(t, http.StatusForbidden, code, "%s of %v: %s", call, header, answer)
			}
			socket := header
			for name, value := range upgrade {
				socket = with(socket, name, value)
			}
			code, _ := f.raw(t, worker, "GET", "/ws?clientId=worker", socket)
			require.Equal(t, http.StatusForbidden, code, "a socket of %v", header)
		}
		code, _ := f.raw(t, worker, "GET", "/queue", map[string]string{"Origin": "http://" + f.Addr})
		require.Equal(t, http.StatusOK, code, "its own page")
		require.True(t, running(), "nobody has stopped it")
	})
	t.Run("names that were rebound", func(t *testing.T) {
		_, port, err := net.SplitHostPort(f.Addr)
		require.NoError(t, err)
		for host, want := range map[string]int{
			"rebound.example:" + port: 403, "rebound.example": 403, "127.0.0.1.nip.example:" + port: 403,
			"localhost:" + port: 200, "127.0.0.1:" + port: 200, "[::1]:" + port: 200,
		} {
			code, answer := f.raw(t, worker, "GET", "/queue", map[string]string{"Host": host})
			require.Equal(t, want, code, "%s: %s", host, answer)
		}
	})
	t.Run("machines", func(t *testing.T) {
		for _, path := range []string{
			"/manager/reboot", "/manager/queue/update_all", "/manager/queue/start", "/snapshot/restore", "/snapshot/remove", "/snapshot/get_current",
			"/comfyui_manager/x", "/v2/manager/reboot", "/v2/manager/queue/start", "/v2/snapshot/restore", "/customnode/install", "/api/manager/reboot",
			"/%6danager/reboot", "/MANAGER/reboot", "/externalmodel/getlist",
		} {
			for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
				code, answer := f.raw(t, attacker, method, path, nil)
				require.GreaterOrEqual(t, code, 403, "%s %s: %s", method, path, answer)
				require.LessOrEqual(t, code, 405, "%s %s: %s", method, path, answer)
			}
		}
	})
}

// Two people behind one address have the same browser and nobody is logged in:
// each clears and interrupts only their own prompts when they name none.
func TestBrowsersOfOneAddress(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "embedded")
	f.startHub()
	f.startAgent("gpu", 2)
	f.idle(2)
	const agent = "Mozilla/5.0 (X11; Linux x86_64) Chrome/140"
	browser := func(client string) func(method, path, body string) string {
		jar, err := cookiejar.New(nil)
		require.NoError(t, err)
		c := &http.Client{Jar: jar}
		do := func(method, path, body string) string {
			r, err := http.NewRequest(method, f.URL(path), strings.NewReader(body))
			require.NoError(t, err)
			r.Header.Set("User-Agent", agent)
			r.Header.Set("Sec-Fetch-Site", "same-origin")
			if method != http.MethodGet {
				r.Header.Set("Origin", f.URL(""))
			}
			resp, err := c.Do(r)
			require.NoError(t, err)
			defer resp.Body.Close()
			answer, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			return string(answer)
		}
		// A page opens its socket first; both bring the cookie.
		conn, _, err := websocket.Dial(t.Context(), f.URL("/ws?clientId="+client), &websocket.DialOptions{HTTPClient: c, HTTPHeader: http.Header{
			"User-Agent": {agent}, "Origin": {f.URL("")}, "Sec-Fetch-Site": {"same-origin"},
		}})
		require.NoError(t, err)
		t.Cleanup(func() { conn.CloseNow() })
		return do
	}
	graph := func(n int) string {
		return fmt.Sprintf(`{"1": {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": %d}},
		"2": {"class_type": "SimulatedWork", "inputs": {"image": ["1", 0], "seconds": 3600, "steps": 10000, "nonce": %d}},
		"3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "x"}}}`, n, n)
	}
	ann, bob := browser("ann"), browser("bob")
	post := func(do func(method, path, body string) string, client, id string, n int) {
		answer := do(http.MethodPost, "/prompt", fmt.Sprintf(`{"prompt": %s, "client_id": %q, "prompt_id": %q}`, graph(n), client, id))
		require.Contains(t, answer, id)
	}
	post(ann, "ann", "ann-running", 1)
	post(bob, "bob", "bob-running", 2)
	f.running(2)
	post(ann, "ann", "ann-waiting", 3)
	post(bob, "bob", "bob-waiting", 4)

	bob(http.MethodPost, "/queue", `{"clear": true}`)
	bob(http.MethodPost, "/interrupt", "")
	state := func(id string) string {
		var j struct{ Status string }
		f.get("/hub/jobs/"+id, &j)
		return j.Status
	}
	f.eventually(func() bool { return state("bob-running") == "cancelled" }, "the one that asked for it stops")
	require.Equal(t, "running", state("ann-running"))
	require.NotEqual(t, "cancelled", state("ann-waiting"))

	// A client that names itself in the body is believed before any cookie.
	ann(http.MethodPost, "/queue", `{"clear": true, "client_id": "bob"}`)
	require.NotEqual(t, "cancelled", state("ann-waiting"))
	ann(http.MethodPost, "/interrupt", `{"client_id": "ann"}`)
	f.eventually(func() bool { return state("ann-running") == "cancelled" }, "the named client's job stops")
}
