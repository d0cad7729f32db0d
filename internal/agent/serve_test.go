package agent

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/gossip"
	"github.com/comfyhub/comfyhub/internal/sim/simsd"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestServeHTTP(t *testing.T) {
	t.Parallel()
	a := newAgent(config{name: "box", machine: machine{restartCommand: "exit 0"}, logger: discard()})
	seen := make(chan string, 1)
	instance := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.RequestURI }))
	defer instance.Close()
	require.NoError(t, a.add(target{name: "box", url: instance.URL}))
	server := httptest.NewServer(http.HandlerFunc(a.door.serveHTTP))
	defer server.Close()
	get := func(path string, header http.Header) int {
		req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil))(t)
		req.URL.Opaque = strings.TrimPrefix(server.URL, "http:") + path
		req.Header = header
		resp := must.Get(server.Client().Do(req))(t)
		defer resp.Body.Close()
		must.Get(io.Copy(io.Discard, resp.Body))(t)
		return resp.StatusCode
	}
	for path, want := range map[string]string{
		"/i/box/queue":                     "/queue",
		"/i/box/":                          "/",
		"/i/box//prompt":                   "//prompt",
		"/i/box/userdata/a%2Fb.json?x=%20": "/userdata/a%2Fb.json?x=%20",
		"/i/box/../../restart/box":         "/../../restart/box",
	} {
		require.Equal(t, 200, get(path, nil), path)
		require.Equal(t, want, <-seen)
	}
	for path, status := range map[string]int{
		"/": 404, "/i/box": 404, "/i/other/queue": 502, "/queue": 404, "/i/": 404, "/restart/other": 404, "/restart/box": 405,
	} {
		require.Equal(t, status, get(path, nil), path)
	}
	require.Equal(t, 403, get("/i/box/queue", http.Header{"Origin": {"http://evil.example.com"}}))
	require.Equal(t, 403, get("/i/box/queue", http.Header{"Sec-Fetch-Site": {"cross-site"}}))
	require.Empty(t, seen)
}

// Without a gossip key anybody on this machine may call the agent, but no page in a browser:
// not one whose own name was made to lead here either, whose requests have no Origin.
func TestForeignHosts(t *testing.T) {
	t.Parallel()
	a := newAgent(config{name: "box", serve: "localhost.example:7947", logger: discard()})
	call := func(host string) int {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+"/i/none/queue", nil)
		a.door.serveHTTP(w, r)
		return w.Code
	}
	a.door.scheme = "http"
	for _, host := range []string{"127.0.0.1:7947", "127.0.0.1", "localhost:7947", "[::1]:7947", "127.9.9.9:1", "localhost.example:7947"} {
		require.Equal(t, http.StatusBadGateway, call(host), host)
	}
	for _, host := range []string{"evil.example:7947", "localhost.evil.example", "127.0.0.1.evil.example:7947", "10.0.0.1:7947", "box"} {
		require.Equal(t, http.StatusForbidden, call(host), host)
	}
	a.door.scheme = "https" // there a key says who calls
	require.Equal(t, http.StatusBadGateway, call("evil.example:7947"))
	a.door.scheme = "" // in a tunnel the host is the machine's name
	require.Equal(t, http.StatusBadGateway, call("box"))
}

func TestListen(t *testing.T) {
	t.Parallel()
	listen := func(c config) (*agent, net.Listener, error) {
		c.logger = discard()
		c.identity = gossip.NewIdentity()
		a := newAgent(c)
		l, err := a.listen()
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return a, l, err
	}
	a, l, err := listen(config{join: []string{"localhost:7946"}, serve: "127.0.0.1:0"})
	require.NoError(t, err)
	require.Equal(t, "http", a.door.scheme)
	_, _, err = listen(config{join: []string{"127.0.0.1"}, serve: l.Addr().String()})
	require.ErrorContains(t, err, "address already in use")

	_, _, err = listen(config{join: []string{"hub.example.com:7946"}, serve: "0.0.0.0:0"})
	require.ErrorIs(t, err, gossip.ErrKeyRequired, "off loopback nothing is served to everybody")
	a, _, err = listen(config{join: []string{"localhost:7946"}, serve: "127.0.0.1:0", key: "k"})
	require.NoError(t, err)
	require.Equal(t, "https", a.door.scheme, "with a key others may be in the group, and loopback is no proof")
	a, l, err = listen(config{join: []string{"hub.example.com:7946"}, serve: "0.0.0.0:0", key: "k"})
	require.NoError(t, err)
	require.Equal(t, "https", a.door.scheme)

	server := a.server(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	defer func() { server.Close(); <-done }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	ask := func(hubs *gossip.Authority, agent string) error {
		tls := must.Get(hubs.DialTLS(agent))(t)
		client := must.Get(comfyui.NewClient("https://127.0.0.1:"+port+"/i/none", comfyui.Options{TLS: tls, ViaAgent: true}))(t)
		defer client.Close()
		_, err = client.SystemStats(t.Context())
		return err
	}
	hubs := newHubs(t, "k")
	require.ErrorContains(t, ask(hubs, a.identity.Key()), "it has no such instance", "a hub gets an answer")
	require.ErrorIs(t, ask(hubs, gossip.NewIdentity().Key()), gossip.ErrPeer, "a hub that wants another agent")
	require.ErrorContains(t, ask(newHubs(t, "k"), a.identity.Key()), "bad certificate", "the gossip key makes no hub")
	stranger := must.Get(comfyui.NewClient("https://127.0.0.1:"+port+"/i/none", comfyui.Options{ViaAgent: true}))(t)
	defer stranger.Close()
	_, err = stranger.SystemStats(t.Context())
	require.ErrorIs(t, err, comfyui.ErrUnreachable)
}

// A stolen machine calls another one, as what it is and as what it is not: it gets no
// answer, whatever it asks for, since TLS ends before a request is read.
func TestStolenMachineCallsAnother(t *testing.T) {
	t.Parallel()
	_, server := startSim(t)
	a := newAgent(config{
		name: "box", key: "k", serve: "127.0.0.1:0", join: []string{"hub.example.com"}, identity: gossip.NewIdentity(), logger: discard(),
		machine: machine{restartCommand: "exit 0", outputs: []string{t.TempDir()}}, state: t.TempDir(),
	})
	require.NoError(t, a.add(target{name: "box", url: server, output: a.outputs[0]}))
	defer a.servers.find("box").client.Close()
	listener := must.Get(a.listen())(t)
	heard := make(chan string, 1000)
	web := a.server(t.Context())
	inner := web.Handler
	web.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heard <- r.URL.Path
		inner.ServeHTTP(w, r)
	})
	done := make(chan error, 1)
	go func() { done <- web.Serve(listener) }()
	defer func() { web.Close(); <-done }()
	call := func(as *gossip.Authority, method, path string) error {
		client := must.Get(as.DialTLS(a.identity.Key()))(t)
		transport := &http.Transport{TLSClientConfig: client}
		defer transport.CloseIdleConnections()
		r := must.Get(http.NewRequestWithContext(t.Context(), method, "https://"+listener.Addr().String()+path, nil))(t)
		resp, err := transport.RoundTrip(r)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	hubs, thief := newHubs(t, "k"), newHubs(t, "k")
	require.NoError(t, call(hubs, http.MethodGet, "/i/box/queue"))
	require.Equal(t, "/i/box/queue", <-heard)
	for _, path := range []string{
		"/i/box/internal/files/output", "/i/box/view?filename=a.png", "/i/box/history", "/i/box/queue", "/i/box/prompt", "/i/box/interrupt",
		"/i/box/free", "/i/box/upload/image", "/i/box/ws", "/i/box/userdata?dir=", "/i/box/object_info", "/i/box/internal/logs/raw", "/i/box/manager/reboot",
		comfyui.RestartPath + "box", comfyui.KeptPath + "box", "/", "/i/none/",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete, http.MethodOptions} {
			require.Error(t, call(thief, method, path), "%s %s", method, path)
		}
	}
	require.Empty(t, heard)
}

// An A1111 server joins the fleet through the agent, and hubs use it there as they use a
// ComfyUI.
func TestA1111JoinsTheFleet(t *testing.T) {
	t.Parallel()
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	sd := simsd.New(simsd.Config{VRAM: 8 << 30})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = sd.Serve(ctx, ln) }()
	t.Cleanup(func() { cancel(); <-done })

	h := startHub(t, "127.0.0.1:0")
	defer h.stop(t)
	list := must.Get(targets("box", nil, nil, []string{"http://" + ln.Addr().String()}))(t)
	stop := startAgent(t, config{name: "box", join: []string{h.Local().Addr}, targets: list, bind: "127.0.0.1:0", serve: "127.0.0.1:0"})
	i := h.await(t, "the server is there", "box", ready)
	require.Equal(t, fleet.KindA1111, i.Kind)
	client := newClient(t, i)
	must.Get(client.Submit(t.Context(), []byte(`{"prompt_id": "p", "client_id": "sid", "prompt": {"1": {"class_type": "A1111Txt2Img", "inputs": {"payload": "{\"steps\": 1, \"width\": 8, \"height\": 8}"}}}}`)))(t)
	require.Eventually(t, func() bool {
		_, found, err := client.History(t.Context(), "p")
		return err == nil && found
	}, time.Minute, 5*time.Millisecond)
	require.Len(t, sd.Done(), 1)
	stop()
}

func TestAgentsKeepTheirIdentity(t *testing.T) {
	t.Parallel()
	none := func(string) (string, bool) { return "", false }
	folder := filepath.Join(t.TempDir(), "state")
	of := func(name, key, state string, lookup func(string) (string, bool)) string {
		t.Helper()
		return must.Get(identity(name, key, state, lookup))(t).Key()
	}
	box := of("box", "k", folder, none)
	require.Equal(t, box, of("box", "k", folder, none))
	require.Equal(t, box, of("box", "", folder, none), "asked for, it lasts without a key too")
	require.NotEqual(t, box, of("other", "k", folder, none), "agents of one machine are not each other")
	require.Equal(t, box, of("box", "k", "", func(name string) (string, bool) {
		require.Equal(t, "STATE_DIRECTORY", name)
		return folder + string(os.PathListSeparator) + "/elsewhere", true
	}))
	require.NotEqual(t, of("box", "", "", none), of("box", "", "", none), "without a key nobody keeps a name")

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := identity("box", "k", file, none)
	require.ErrorContains(t, err, "--state")

	pinned := func(given string) error {
		_, err := hubPin("box", "k", given, folder, discard(), none)
		return err
	}
	require.ErrorContains(t, pinned("no key"), "comfyhub hub-key")
	require.NoError(t, pinned(box)) // any public key will do
	require.Equal(t, box+"\n", string(must.Get(os.ReadFile(filepath.Join(folder, "box.hub")))(t)), "the key of the hubs lies beside the agent's own")

	cmd := newCommand()
	cmd.SetArgs([]string{"run", "--join", "127.0.0.1:1", "--name", "box", "--state", file, "--comfyui", "http://127.0.0.1:1"})
	cmd.SetErr(io.Discard)
	require.ErrorContains(t, cmd.ExecuteContext(t.Context()), "--state")
}
