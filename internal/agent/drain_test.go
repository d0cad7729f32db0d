package agent

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
)

// An agent that is asked to stop finishes what hubs have sent, gets nothing new, and
// then leaves. A second signal and the stop timeout end the wait.
func TestStoppingAgentFinishesItsRuns(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		timeout time.Duration
		end     func(t *testing.T, client *comfyui.Client, hurry func())
	}{
		"the run ends": {time.Hour, func(t *testing.T, client *comfyui.Client, _ func()) {
			t.Helper()
			require.NoError(t, client.Interrupt(t.Context(), ours))
		}},
		"a second signal":     {time.Hour, func(_ *testing.T, _ *comfyui.Client, hurry func()) { hurry() }},
		"the timeout is over": {2 * time.Second, func(*testing.T, *comfyui.Client, func()) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := startHub(t, "127.0.0.1:0")
			defer h.stop(t)
			server, url := startSim(t)
			hurry, second := context.WithCancel(t.Context())
			defer second()
			ctx, first := context.WithCancel(t.Context())
			defer first()
			c := config{
				name: "box", bind: "127.0.0.1:0", serve: "127.0.0.1:0", join: []string{h.Local().Addr}, targets: []target{{name: "box", url: url}},
				logger: discard(), stopTimeout: tt.timeout, hurry: hurry.Done(),
			}
			done := make(chan error, 1)
			go func() { done <- c.run(ctx) }()
			client := newClient(t, h.await(t, "idle", "box", ready))
			_, err := client.Submit(t.Context(), endless(ours, mark))
			require.NoError(t, err)
			h.await(t, "busy", "box", is(fleet.Busy))

			first()
			i := h.await(t, "it gets no more", "box", func(i fleet.Instance) bool { return i.State == fleet.Draining || i.Left })
			if tt.timeout == time.Hour {
				require.Equal(t, "its agent stops", i.Reason)
				queue, err := client.Queue(t.Context())
				require.NoError(t, err, "hubs still reach the server")
				require.Len(t, queue.Running, 1)
				require.Empty(t, done)
			}
			tt.end(t, client, second)
			left := h.await(t, "it leaves", "box", func(i fleet.Instance) bool { return i.Left })
			require.Equal(t, fleet.Offline, left.State)
			require.NoError(t, <-done)
			require.Equal(t, 1, server.Started(), "the server was left alone")
		})
	}
}

// The files of a run are fetched after its end: the agent stays for that.
func TestStoppingAgentWaitsForFetches(t *testing.T) {
	t.Parallel()
	a := &agent{config: config{stopTimeout: time.Hour}, log: discard()}
	require.True(t, a.finished())
	asked, answer := make(chan bool), make(chan bool)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- true; <-answer }))
	defer server.Close()
	require.NoError(t, a.add(target{name: "box", url: server.URL}))
	agent := httptest.NewServer(http.HandlerFunc(a.serveHTTP))
	defer agent.Close()
	get := func(path string) (wait func()) {
		done := make(chan error, 1)
		go func() {
			resp, err := http.Get(agent.URL + "/i/box" + path)
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			done <- err
		}()
		<-asked
		return func() { answer <- true; require.NoError(t, <-done) }
	}
	end := get("/custom_node/wait")
	require.True(t, a.finished(), "a route of a node may wait for a person")
	end()
	end = get("/view?filename=a.png")
	require.False(t, a.finished())
	answered := time.Now()
	end()
	if finished := a.finished(); time.Since(answered) < fetchPause { // else nobody has fetched any for long enough
		require.False(t, finished, "there may be another file")
	}
	require.Eventually(t, a.finished, time.Minute, 10*time.Millisecond)
}

// A restart that somebody asks for is told to the hubs, until the next process is there
// and after that.
func TestRestartThatWasAskedFor(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{
		"the agent's command":      comfyui.RestartPath + "box",
		"ComfyUI-Manager":          comfyui.InstancePath + "box/api/v2/manager/reboot",
		"an older ComfyUI-Manager": comfyui.InstancePath + "box/manager/reboot",
		"in another spelling":      comfyui.InstancePath + "box/%6danager/reboot",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := startHub(t, "127.0.0.1:0")
			defer h.stop(t)
			server, _ := startSim(t)
			rebooting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost && comfyui.IsReboot(r.Method, r.URL) {
					return
				}
				server.Handler().ServeHTTP(w, r)
			}))
			defer rebooting.Close()
			startAgent(t, config{
				name: "box", bind: "127.0.0.1:0", serve: "127.0.0.1:0", join: []string{h.Local().Addr},
				targets: []target{{name: "box", url: rebooting.URL}}, machine: machine{restartCommand: "exit 0"},
			})
			before := h.await(t, "idle", "box", ready)
			require.False(t, before.Deliberate(before.Report.Boot))
			resp, err := http.Post(urlOf(t, before)+path, "", http.NoBody)
			require.NoError(t, err)
			resp.Body.Close()
			require.Equal(t, http.StatusOK, resp.StatusCode)
			due := h.await(t, "it is told", "box", is(fleet.Draining))
			require.True(t, due.Deliberate(before.Report.Boot))

			server.Kill()
			h.await(t, "it is gone", "box", is(fleet.Offline))
			server.Restart()
			after := h.await(t, "the next process", "box", func(i fleet.Instance) bool { return ready(i) && i.Report.Boot != before.Report.Boot })
			require.True(t, after.Deliberate(before.Report.Boot), "what the last process ran")
			require.False(t, after.Deliberate(after.Report.Boot), "what this process runs")
		})
	}
}

// urlOf is where the agent of an instance serves.
func urlOf(t *testing.T, i fleet.Instance) string {
	t.Helper()
	address, ok := strings.CutSuffix(i.URL, comfyui.InstancePath+i.Name)
	require.True(t, ok)
	return address
}

// A reboot that is refused is none, and neither is the failure of the restart command.
// While one is due, hubs hear that a server that is gone was meant to go.
func TestRestartThatIsRefused(t *testing.T) {
	t.Parallel()
	status := http.StatusForbidden
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer server.Close()
	a := &agent{config: config{machine: machine{restartCommand: "exit 1"}}, log: discard()}
	require.NoError(t, a.add(target{name: "box", url: server.URL}))
	i := a.find("box")
	agent := httptest.NewServer(http.HandlerFunc(a.serveHTTP))
	defer agent.Close()
	client, err := comfyui.NewClient(agent.URL+"/i/box", comfyui.Options{ViaAgent: true})
	require.NoError(t, err)
	defer client.Close()
	post := func() {
		resp, err := http.Post(agent.URL+"/i/box/manager/reboot", "", http.NoBody)
		require.NoError(t, err)
		resp.Body.Close()
	}
	post()
	require.False(t, a.deliberate(i))
	require.NoError(t, client.Restart(t.Context()))
	require.Eventually(t, func() bool { return !a.deliberate(i) }, time.Minute, 5*time.Millisecond)
	server.Close()
	_, err = client.Queue(t.Context())
	require.ErrorIs(t, err, comfyui.ErrGone)
	require.NotErrorIs(t, err, comfyui.ErrRestarting)
	post()
	_, err = client.Queue(t.Context())
	require.ErrorIs(t, err, comfyui.ErrRestarting)
	require.ErrorIs(t, err, comfyui.ErrGone)
}
