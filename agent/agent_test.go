package main

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/freeport"
	"github.com/comfyhub/comfyhub/internal/gossip"
	"github.com/comfyhub/comfyhub/internal/leaktest"
	"github.com/comfyhub/comfyhub/internal/sim"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// hub is what an agent needs of a hub: a place in the gossip and a registry.
type hub struct {
	*gossip.Gossip
	registry *fleet.Registry

	mu      sync.Mutex
	refused []error
}

func startHub(t testing.TB, bind string) *hub {
	t.Helper()
	h := &hub{registry: fleet.NewRegistry()}
	g, err := gossip.Join(t.Context(), gossip.Config{
		Role: gossip.RoleHub, Name: "hub", Bind: bind,
		OnMember: func(e gossip.Event) {
			if e.Left {
				h.registry.AgentLeft(e.Member.Name, e.Member.Boot, e.Member.Key)
			}
		},
		OnReport: func(r fleet.Report) {
			if err := h.registry.Apply(r); err != nil {
				h.mu.Lock()
				h.refused = append(h.refused, err)
				h.mu.Unlock()
			}
		},
	})
	require.NoError(t, err)
	h.Gossip = g
	return h
}

func (h *hub) stop(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = h.Leave(ctx) // nobody may be left to hear it
}

func (h *hub) await(t testing.TB, what, name string, ok func(fleet.Instance) bool) fleet.Instance {
	t.Helper()
	var i fleet.Instance
	require.Eventually(t, func() bool {
		var known bool
		i, known = h.registry.Instance(name)
		return known && ok(i)
	}, 30*time.Second, 5*time.Millisecond, what)
	return i
}

func is(s fleet.State) func(fleet.Instance) bool {
	return func(i fleet.Instance) bool { return i.State == s }
}

// ready is an instance that a hub would give a job.
func ready(i fleet.Instance) bool { return i.State == fleet.Idle && i.Report.ObjectInfo != "" }

// startAgent runs an agent until the returned function is called.
func startAgent(t testing.TB, c config) (stop func()) {
	t.Helper()
	if c.logger == nil {
		c.logger = discard()
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			require.NoError(t, <-done)
		})
	}
	t.Cleanup(stop)
	return stop
}

// startSim runs a simulated server.
func startSim(t testing.TB) (*sim.Server, string) {
	t.Helper()
	s, err := sim.New(sim.Config{Dir: t.TempDir()})
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(ctx, listener) }() // ends with ctx
	t.Cleanup(func() { cancel(); <-done; s.Close() })
	return s, "http://" + listener.Addr().String()
}

func newClient(t testing.TB, i fleet.Instance) *comfyui.Client {
	t.Helper()
	c, err := comfyui.NewClient(i.URL, comfyui.Options{ViaAgent: !i.Direct})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// work is a prompt of a known length; the id makes it one that is not cached.
func work(id, extra string, seconds float64) []byte {
	nonce := crc32.ChecksumIEEE([]byte(id))
	return fmt.Appendf(nil, `{"prompt_id": %q, "client_id": "sid", "extra_data": %s, "prompt": {`+
		`"1": {"class_type": "EmptyImage", "inputs": {"width": 16, "height": 16, "batch_size": 1, "color": 0}}, `+
		`"2": {"class_type": "SimulatedWork", "inputs": {"image": ["1", 0], "seconds": %g, "steps": 2, "fail": "none", "nonce": %d}}, `+
		`"3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "x"}}}}`, id, extra, seconds, nonce)
}

// endless is work that goes on until somebody interrupts it, so that nobody can
// be too late to see it.
func endless(id, extra string) []byte {
	return bytes.Replace(work(id, extra, 3600), []byte(`"steps": 2`), []byte(`"steps": 10000`), 1)
}

const mark = `{"comfyhub": {"job": "k", "fence": 5}}`

// The prompts of TestAgentTellsWhatItsServersDo.
const (
	ours   = "11111111-1111-4111-8111-111111111111"
	others = "22222222-2222-4222-8222-222222222222"
)

func TestAgentTellsWhatItsServersDo(t *testing.T) {
	t.Parallel()
	h := startHub(t, "127.0.0.1:0")
	defer h.stop(t)
	one, oneURL := startSim(t)
	_, twoURL := startSim(t)
	list, err := targets("box", []string{oneURL, twoURL}, nil)
	require.NoError(t, err)
	stop := startAgent(t, config{name: "box", join: []string{h.Local().Addr}, targets: list})
	i := h.await(t, "idle", "box-1", ready)
	h.await(t, "idle", "box-2", ready)
	require.Equal(t, "box", i.Agent)
	require.Equal(t, "0.3.64", i.Report.Version)
	require.NotZero(t, i.Report.VRAMTotal)
	require.False(t, i.Direct)

	// The hub works with the server through the agent.
	client := newClient(t, i)
	socket, err := client.Dial(t.Context(), "sid")
	require.NoError(t, err)
	defer socket.Close()
	_, err = client.Submit(t.Context(), endless(ours, mark))
	require.NoError(t, err)
	busy := h.await(t, "busy with ours", "box-1", func(i fleet.Instance) bool {
		return i.State == fleet.Busy && i.Report.Job == "k" && i.Report.Fence == 5
	})
	require.Equal(t, ours, busy.Running)
	require.NoError(t, client.Interrupt(t.Context(), ours))
	for {
		frame, err := socket.Next(t.Context())
		require.NoError(t, err)
		if m, ok := comfyui.ParseMessage(frame.Data); ok && m.Ends() {
			break
		}
	}
	h.await(t, "idle again", "box-1", is(fleet.Idle))

	_, err = client.Submit(t.Context(), endless(others, "{}"))
	require.NoError(t, err)
	foreign := h.await(t, "somebody else's prompt", "box-1", is(fleet.Foreign))
	require.Equal(t, "prompts of others: 1", foreign.Reason)
	require.NoError(t, client.Interrupt(t.Context(), others))
	h.await(t, "idle again", "box-1", is(fleet.Idle))

	before, _ := h.registry.Instance("box-1")
	one.Kill()
	h.await(t, "the server is killed", "box-1", is(fleet.Offline))
	h.await(t, "the other is not", "box-2", is(fleet.Idle))
	one.Restart()
	after := h.await(t, "the server is back", "box-1", ready)
	require.Greater(t, after.Report.Boot, before.Report.Boot)

	stop()
	left := h.await(t, "the agent leaves", "box-1", is(fleet.Offline))
	require.Equal(t, "its agent has left", left.Reason)
}

func TestRestartsInAnyOrder(t *testing.T) {
	t.Parallel()
	address, err := freeport.Address()
	require.NoError(t, err)
	h := startHub(t, address)
	_, url := startSim(t)
	c := config{name: "box", join: []string{address}, targets: []target{{name: "box", url: url}}}
	stop := startAgent(t, c)
	h.await(t, "idle", "box", ready)

	h.stop(t)
	h = startHub(t, address)
	h.await(t, "known to the hub that restarted", "box", ready)

	stop()
	h.await(t, "the agent has left", "box", is(fleet.Offline))
	startAgent(t, c)
	h.await(t, "and is back", "box", ready)
	h.stop(t)
}

func TestAgentBeforeHubAndServer(t *testing.T) {
	t.Parallel()
	address, err := freeport.Address()
	require.NoError(t, err)
	dead, err := freeport.Address()
	require.NoError(t, err)
	startAgent(t, config{name: "box", join: []string{address}, targets: []target{{name: "box", url: "http://" + dead}}})
	h := startHub(t, address)
	defer h.stop(t)
	i := h.await(t, "the agent is there, its server is not", "box", func(i fleet.Instance) bool { return i.Reason == "connection refused" })
	require.Equal(t, fleet.Offline, i.State)
	_, err = newClient(t, i).Submit(t.Context(), nil)
	require.ErrorIs(t, err, comfyui.ErrGone, "the agent tells that its server is dead")
}

func TestTwoAgentsOfOneName(t *testing.T) {
	t.Parallel()
	h := startHub(t, "127.0.0.1:0")
	defer h.stop(t)
	_, url := startSim(t)
	c := config{name: "box", join: []string{h.Local().Addr}, targets: []target{{name: "box", url: url}}}
	stop := startAgent(t, c)
	first := h.await(t, "idle", "box", ready)
	startAgent(t, c)
	require.Eventually(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, err := range h.refused {
			if strings.Contains(err.Error(), "needs another --name") {
				return true
			}
		}
		return false
	}, 30*time.Second, 5*time.Millisecond, "the second is refused")
	i, _ := h.registry.Instance("box")
	require.Equal(t, first.URL, i.URL)
	stop()
	h.await(t, "the second takes over when the first leaves", "box", func(i fleet.Instance) bool {
		return i.URL != first.URL && ready(i)
	})
}

func TestDirect(t *testing.T) {
	t.Parallel()
	h := startHub(t, "127.0.0.1:0")
	defer h.stop(t)
	_, url := startSim(t)
	startAgent(t, config{name: "box", join: []string{h.Local().Addr}, targets: []target{{name: "box", url: url, direct: "http://gpu.example.com:8188"}}})
	i := h.await(t, "known", "box", ready)
	require.Equal(t, "http://gpu.example.com:8188", i.URL)
	require.True(t, i.Direct)
}

func TestSearch(t *testing.T) {
	t.Parallel()
	h := startHub(t, "127.0.0.1:0")
	defer h.stop(t)
	port := func(url string) (n int) {
		_, err := fmt.Sscanf(url[strings.LastIndexByte(url, ':'):], ":%d", &n)
		require.NoError(t, err)
		return n
	}
	_, real := startSim(t)
	notOurs := httptest.NewServer(http.NotFoundHandler())
	defer notOurs.Close()
	anotherHub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(comfyui.HubHeader, "1")
		fmt.Fprint(w, `{"system": {"comfyui_version": "0.3.64"}, "devices": []}`)
	}))
	defer anotherHub.Close()
	later, err := freeport.Address()
	require.NoError(t, err)

	startAgent(t, config{
		name: "box", join: []string{h.Local().Addr}, searchEvery: 20 * time.Millisecond,
		ports: []int{port(anotherHub.URL), port(notOurs.URL), port(real), port("http://" + later)},
	})
	h.await(t, "found", fmt.Sprintf("box-%d", port(real)), ready)
	require.Len(t, h.registry.Instances(), 1)

	s, err := sim.New(sim.Config{Dir: t.TempDir()})
	require.NoError(t, err)
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.ListenAndServe(ctx, later) }()
	defer func() { cancel(); require.NoError(t, <-done) }()
	h.await(t, "one that starts later", fmt.Sprintf("box-%d", port("http://"+later)), ready)
}

func TestServeHTTP(t *testing.T) {
	t.Parallel()
	a := &agent{config: config{name: "box", restartCommand: "exit 0"}, log: discard()}
	seen := make(chan string, 1)
	instance := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.RequestURI }))
	defer instance.Close()
	require.NoError(t, a.add(target{name: "box", url: instance.URL}))
	server := httptest.NewServer(http.HandlerFunc(a.serveHTTP))
	defer server.Close()
	get := func(path string, header http.Header) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		require.NoError(t, err)
		req.URL.Opaque = strings.TrimPrefix(server.URL, "http:") + path
		req.Header = header
		resp, err := server.Client().Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
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
		"/": 404, "/i/box": 404, "/i/other/queue": 404, "/queue": 404, "/i/": 404, "/restart/other": 404, "/restart/box": 405,
	} {
		require.Equal(t, status, get(path, nil), path)
	}
	require.Equal(t, 403, get("/i/box/queue", http.Header{"Origin": {"http://evil.example.com"}}))
	require.Equal(t, 403, get("/i/box/queue", http.Header{"Sec-Fetch-Site": {"cross-site"}}))
	require.Empty(t, seen)
}

func TestRestartCommand(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "out")
	a := &agent{config: config{restartCommand: `printf "%s %s" "$COMFYHUB_INSTANCE" "$COMFYHUB_INSTANCE_URL" > ` + file}, log: discard()}
	require.NoError(t, a.add(target{name: "box", url: "http://127.0.0.1:1"}))
	server := httptest.NewServer(http.HandlerFunc(a.serveHTTP))
	defer server.Close()
	client, err := comfyui.NewClient(server.URL+"/i/box", comfyui.Options{ViaAgent: true})
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.Restart(t.Context()))
	require.Eventually(t, func() bool {
		data, err := os.ReadFile(file)
		return err == nil && string(data) == "box http://127.0.0.1:1"
	}, 30*time.Second, 5*time.Millisecond)
	var status *comfyui.StatusError
	require.ErrorAs(t, client.Restart(t.Context()), &status)
	require.Equal(t, 409, status.Status, "a server that is just starting is not killed again")

	direct, err := comfyui.NewClient(server.URL, comfyui.Options{})
	require.NoError(t, err)
	defer direct.Close()
	require.ErrorAs(t, direct.Restart(t.Context()), &status)
	require.Equal(t, 501, status.Status)
}

func TestListen(t *testing.T) {
	t.Parallel()
	listen := func(c config) (*agent, net.Listener, error) {
		c.logger = discard()
		c.identity = gossip.NewIdentity()
		a := &agent{config: c, log: c.logger}
		l, err := a.listen()
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return a, l, err
	}
	a, l, err := listen(config{join: []string{"localhost:7946"}, serve: "127.0.0.1:0"})
	require.NoError(t, err)
	require.Equal(t, "http", a.scheme)
	_, _, err = listen(config{join: []string{"127.0.0.1"}, serve: l.Addr().String()})
	require.ErrorContains(t, err, "address already in use")

	_, _, err = listen(config{join: []string{"hub.example.com:7946"}, serve: "0.0.0.0:0"})
	require.ErrorIs(t, err, gossip.ErrKeyRequired, "off loopback nothing is served to everybody")
	a, _, err = listen(config{join: []string{"localhost:7946"}, serve: "127.0.0.1:0", key: "k"})
	require.NoError(t, err)
	require.Equal(t, "https", a.scheme, "with a key others may be in the group, and loopback is no proof")
	a, l, err = listen(config{join: []string{"hub.example.com:7946"}, serve: "0.0.0.0:0", key: "k"})
	require.NoError(t, err)
	require.Equal(t, "https", a.scheme)

	server := a.server(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	defer func() { server.Close(); <-done }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	tls, err := gossip.DialTLS("k", a.identity.Key())
	require.NoError(t, err)
	client, err := comfyui.NewClient("https://127.0.0.1:"+port+"/i/none", comfyui.Options{TLS: tls, ViaAgent: true})
	require.NoError(t, err)
	defer client.Close()
	_, err = client.SystemStats(t.Context())
	var status *comfyui.StatusError
	require.ErrorAs(t, err, &status, "with the key one gets an answer")
	tls, err = gossip.DialTLS("k", gossip.NewIdentity().Key())
	require.NoError(t, err)
	other, err := comfyui.NewClient("https://127.0.0.1:"+port+"/i/none", comfyui.Options{TLS: tls, ViaAgent: true})
	require.NoError(t, err)
	defer other.Close()
	_, err = other.SystemStats(t.Context())
	require.ErrorIs(t, err, gossip.ErrPeer, "a hub that wants another agent")
	stranger, err := comfyui.NewClient("https://127.0.0.1:"+port+"/i/none", comfyui.Options{ViaAgent: true})
	require.NoError(t, err)
	defer stranger.Close()
	_, err = stranger.SystemStats(t.Context())
	require.ErrorIs(t, err, comfyui.ErrUnreachable)
}

// An agent looks at the model folders of a server on its own machine, and tells
// the hubs when a file was added, also while the server works.
func TestModelFoldersAreLookedAt(t *testing.T) {
	t.Parallel()
	server, url := startSim(t)
	h := startHub(t, "127.0.0.1:0")
	defer h.stop(t)
	startAgent(t, config{
		name: "gpu", bind: "127.0.0.1:0", serve: "127.0.0.1:0", join: []string{h.Local().Addr},
		targets: []target{{name: "gpu", url: url}},
	})
	first := h.await(t, "up", "gpu", ready)
	_, err := newClient(t, first).Submit(t.Context(), endless("11111111-1111-4111-8111-111111111111", "{}"))
	require.NoError(t, err)
	h.await(t, "busy", "gpu", func(i fleet.Instance) bool { return i.State != fleet.Idle })
	loras := filepath.Join(server.Dir(), "models", "loras")
	require.NoError(t, os.MkdirAll(loras, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(loras, "new.safetensors"), nil, 0o644))
	h.await(t, "other models", "gpu", func(i fleet.Instance) bool {
		return i.Report.ObjectInfo != "" && i.Report.ObjectInfo != first.Report.ObjectInfo
	})
}
