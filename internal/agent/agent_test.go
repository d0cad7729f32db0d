package agent

import (
	"context"
	"fmt"
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
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/testing/freeport"
	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

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
	list := must.Get(targets("box", []string{oneURL, twoURL}, nil, nil))(t)
	stop := startAgent(t, config{name: "box", join: []string{h.Local().Addr}, targets: list})
	i := h.await(t, "idle", "box-1", ready)
	h.await(t, "idle", "box-2", ready)
	require.Equal(t, "box", i.Agent)
	require.Equal(t, "0.3.64", i.Report.Version)
	require.NotZero(t, i.Report.VRAMTotal)
	require.False(t, i.Direct)

	// The hub works with the server through the agent.
	client := newClient(t, i)
	socket := must.Get(client.Dial(t.Context(), "sid"))(t)
	defer socket.Close()
	must.Get(client.Submit(t.Context(), endless(ours, mark)))(t)
	busy := h.await(t, "busy with ours", "box-1", func(i fleet.Instance) bool {
		return i.State == fleet.Busy && i.Report.Job == "k" && i.Report.Fence == 5
	})
	require.Equal(t, ours, busy.Running)
	require.NoError(t, client.Interrupt(t.Context(), ours))
	for {
		frame := must.Get(socket.Next(t.Context()))(t)
		if m, ok := comfyui.ParseMessage(frame.Data); ok && m.Ends() {
			break
		}
	}
	h.await(t, "idle again", "box-1", is(fleet.Idle))

	must.Get(client.Submit(t.Context(), endless(others, "{}")))(t)
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
	address := must.Get(freeport.Address())(t)
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
	address := must.Get(freeport.Address())(t)
	dead := must.Get(freeport.Address())(t)
	startAgent(t, config{name: "box", join: []string{address}, targets: []target{{name: "box", url: "http://" + dead}}})
	h := startHub(t, address)
	defer h.stop(t)
	i := h.await(t, "the agent is there, its server is not", "box", func(i fleet.Instance) bool { return i.Reason == "connection refused" })
	require.Equal(t, fleet.Offline, i.State)
	_, err := newClient(t, i).Submit(t.Context(), nil)
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
		must.Get(fmt.Sscanf(url[strings.LastIndexByte(url, ':'):], ":%d", &n))(t)
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
	later := must.Get(freeport.Address())(t)

	startAgent(t, config{
		name: "box", join: []string{h.Local().Addr}, searchEvery: 20 * time.Millisecond,
		ports: []int{port(anotherHub.URL), port(notOurs.URL), port(real), port("http://" + later)},
	})
	h.await(t, "found", fmt.Sprintf("box-%d", port(real)), ready)
	for _, i := range h.registry.Instances() { // one that somebody runs on this machine may be among them
		require.NotContains(t, []string{fmt.Sprintf("box-%d", port(notOurs.URL)), fmt.Sprintf("box-%d", port(anotherHub.URL))}, i.Name)
	}

	s := must.Get(sim.New(sim.Config{Dir: t.TempDir()}))(t)
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.ListenAndServe(ctx, later) }()
	defer func() { cancel(); require.NoError(t, <-done) }()
	h.await(t, "one that starts later", fmt.Sprintf("box-%d", port("http://"+later)), ready)
}

// An agent that looks for its servers joins before it has found them: what runs there goes on.
func TestSearchAfterARestart(t *testing.T) {
	t.Parallel()
	h := startHub(t, "127.0.0.1:0")
	defer h.stop(t)
	_, url := startSim(t)
	var port int
	must.Get(fmt.Sscanf(url[strings.LastIndexByte(url, ':'):], ":%d", &port))(t)
	name := fmt.Sprintf("box-%d", port)
	c := config{
		name: "box", join: []string{h.Local().Addr}, serve: must.Get(freeport.Address())(t), searchEvery: 20 * time.Millisecond, ports: []int{port},
	}
	stop := startAgent(t, c)
	first := h.await(t, "found", name, ready)
	client := newClient(t, first)
	must.Get(client.Submit(t.Context(), endless(ours, mark)))(t)
	h.await(t, "busy with ours", name, func(i fleet.Instance) bool { return i.Report.Job == "k" })
	stop()

	nowhere := c
	nowhere.ports = []int{0}
	must.Get(fmt.Sscanf(must.Get(freeport.Address())(t), "127.0.0.1:%d", &nowhere.ports[0]))(t)
	stop = startAgent(t, nowhere)
	require.Eventually(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		last := h.applied[len(h.applied)-1]
		return last.Boot > h.applied[0].Boot && len(last.Instances) == 0
	}, 30*time.Second, 5*time.Millisecond, "it has found nothing yet")
	i, known := h.registry.Instance(name)
	require.True(t, known)
	require.True(t, i.Left)
	require.Equal(t, first.URL, i.URL)
	_, err := client.ViewQuery(t.Context(), nil, nil)
	require.ErrorIs(t, err, comfyui.ErrUnreachable, "its files are not gone")
	stop()

	startAgent(t, c)
	h.await(t, "it still runs", name, func(i fleet.Instance) bool { return i.State == fleet.Busy && i.Report.Job == "k" })
	require.NoError(t, client.Interrupt(t.Context(), ours))
	h.await(t, "idle again", name, is(fleet.Idle))
}

func TestRestartCommand(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "out")
	a := newAgent(config{machine: machine{restartCommand: `printf "%s %s" "$COMFYHUB_INSTANCE" "$COMFYHUB_INSTANCE_URL" > ` + file}, logger: discard()})
	require.NoError(t, a.add(target{name: "box", url: "http://127.0.0.1:1"}))
	server := httptest.NewServer(http.HandlerFunc(a.door.serveHTTP))
	defer server.Close()
	client := must.Get(comfyui.NewClient(server.URL+"/i/box", comfyui.Options{ViaAgent: true}))(t)
	defer client.Close()
	require.NoError(t, client.Restart(t.Context()))
	require.Eventually(t, func() bool {
		data, err := os.ReadFile(file)
		return err == nil && string(data) == "box http://127.0.0.1:1"
	}, 30*time.Second, 5*time.Millisecond)
	var status *comfyui.StatusError
	require.ErrorAs(t, client.Restart(t.Context()), &status)
	require.Equal(t, 409, status.Status, "a server that is just starting is not killed again")

	direct := must.Get(comfyui.NewClient(server.URL, comfyui.Options{}))(t)
	defer direct.Close()
	require.ErrorAs(t, direct.Restart(t.Context()), &status)
	require.Equal(t, 501, status.Status)
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
	must.Get(newClient(t, first).Submit(t.Context(), endless("11111111-1111-4111-8111-111111111111", "{}")))(t)
	h.await(t, "busy", "gpu", func(i fleet.Instance) bool { return i.State != fleet.Idle })
	loras := filepath.Join(server.Dir(), "models", "loras")
	require.NoError(t, os.MkdirAll(loras, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(loras, "new.safetensors"), nil, 0o644))
	h.await(t, "other models", "gpu", func(i fleet.Instance) bool {
		return i.Report.ObjectInfo != "" && i.Report.ObjectInfo != first.Report.ObjectInfo
	})
}
