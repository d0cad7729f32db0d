package agent

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
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
			must.Get(client.Submit(t.Context(), endless(ours, mark)))(t)
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
	a := newAgent(config{stopTimeout: time.Hour, logger: discard()})
	require.True(t, a.finished())
	asked, answer := make(chan bool), make(chan bool)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- true; <-answer }))
	defer server.Close()
	require.NoError(t, a.add(target{name: "box", url: server.URL}))
	agent := httptest.NewServer(http.HandlerFunc(a.door.serveHTTP))
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
			resp := must.Get(http.Post(urlOf(t, before)+path, "", http.NoBody))(t)
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
	a := newAgent(config{machine: machine{restartCommand: "exit 1"}, logger: discard()})
	require.NoError(t, a.add(target{name: "box", url: server.URL}))
	i := a.servers.find("box")
	agent := httptest.NewServer(http.HandlerFunc(a.door.serveHTTP))
	defer agent.Close()
	client := must.Get(comfyui.NewClient(agent.URL+"/i/box", comfyui.Options{ViaAgent: true}))(t)
	defer client.Close()
	post := func() {
		resp := must.Get(http.Post(agent.URL+"/i/box/manager/reboot", "", http.NoBody))(t)
		resp.Body.Close()
	}
	post()
	require.False(t, a.servers.deliberate(i))
	require.NoError(t, client.Restart(t.Context()))
	require.Eventually(t, func() bool { return !a.servers.deliberate(i) }, time.Minute, 5*time.Millisecond)
	server.Close()
	_, err := client.Queue(t.Context())
	require.ErrorIs(t, err, comfyui.ErrGone)
	require.NotErrorIs(t, err, comfyui.ErrRestarting)
	post()
	_, err = client.Queue(t.Context())
	require.ErrorIs(t, err, comfyui.ErrRestarting)
	require.ErrorIs(t, err, comfyui.ErrGone)
}

// restarting is a restarter whose command and process a test decides.
type restarting struct {
	restarter

	lock  sync.Mutex
	began []time.Duration
	at    moment
	fails error
}

func newRestarting() *restarting {
	r := &restarting{at: moment{boot: 1}}
	start := time.Now()
	r.command = func() error {
		r.lock.Lock()
		defer r.lock.Unlock()
		r.began = append(r.began, time.Since(start))
		return r.fails
	}
	r.now = func() moment {
		r.lock.Lock()
		defer r.lock.Unlock()
		return r.at
	}
	// Hubs are told at once, with the state.
	r.begins, r.failed, r.log = func() { r.state() }, func() { r.state() }, discard()
	return r
}

// comesBack gives the server another process.
func (r *restarting) comesBack() {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.at.boot++
}

// runs has the server run a prompt; "" for none.
func (r *restarting) runs(prompt string) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.at.prompt = prompt
}

// from makes the command fail from now on, or work if err is nil.
func (r *restarting) from(err error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.fails = err
}

// times are when the command was run.
func (r *restarting) times() []time.Duration {
	r.lock.Lock()
	defer r.lock.Unlock()
	return slices.Clone(r.began)
}

// A server that is found sick again and again is restarted after longer and longer pauses,
// and soon again once it has gone well for hours.
func TestRestartsBackOff(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := newRestarting()
		require.NoError(t, r.start())
		for range 8 {
			synctest.Wait()
			r.comesBack() // it has come back, and is sick at once
			require.ErrorIs(t, r.start(), errRestarting)
			require.ErrorIs(t, r.start(), errRestarting, "which plans no second one")
			time.Sleep(time.Until(r.state().next))
		}
		synctest.Wait()
		m := time.Minute
		require.Equal(t, []time.Duration{0, 2 * m, 6 * m, 14 * m, 30 * m, 62 * m, 122 * m, 182 * m, 242 * m}, r.times())
		require.Equal(t, 9, r.state().count)
		time.Sleep(restartCured)
		require.Zero(t, r.state().count)
		require.NoError(t, r.start())
		synctest.Wait()
		require.Len(t, r.times(), 10)
	})
}

// A restart that was planned is not made when the process is another one by then.
func TestPlannedRestartOfAnotherProcess(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := newRestarting()
		require.NoError(t, r.start())
		synctest.Wait()
		require.ErrorIs(t, r.start(), errRestarting, "the hub asks again, of the process that ends")
		r.comesBack()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, r.times(), 1)
		require.Zero(t, r.state().next)
	})
}

// A restart that was planned spares a prompt that was not there when it was asked for: the
// server has got rid of what it hung on. One that nothing runs on may be restarted.
func TestPlannedRestartSparesAnotherPrompt(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := newRestarting()
		require.NoError(t, r.start())
		synctest.Wait()
		r.comesBack()
		r.runs("hangs")
		require.ErrorIs(t, r.start(), errRestarting)
		r.runs("well")
		time.Sleep(restartPause)
		synctest.Wait()
		require.Len(t, r.times(), 1)
		require.Zero(t, r.state().next)

		r.runs("")
		require.NoError(t, r.start())
		synctest.Wait()
		r.comesBack()
		require.ErrorIs(t, r.start(), errRestarting, "it accepts a prompt and does not start it")
		r.runs("hangs")
		require.ErrorIs(t, r.start(), errRestarting, "the last time that somebody asks counts")
		time.Sleep(time.Until(r.state().next))
		synctest.Wait()
		require.Len(t, r.times(), 3, "it hangs still")

		r.comesBack()
		require.ErrorIs(t, r.start(), errRestarting)
		r.runs("")
		time.Sleep(time.Until(r.state().next))
		synctest.Wait()
		require.Len(t, r.times(), 4, "nothing is lost")
	})
}

// A command that fails is tried again, and told of; the agent's end ends that.
func TestRestartCommandFails(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := newRestarting()
		r.from(errors.New("no such unit"))
		require.NoError(t, r.start())
		synctest.Wait()
		require.Equal(t, "no such unit", r.state().err)
		time.Sleep(restartPause)
		synctest.Wait()
		require.Len(t, r.times(), 2)
		r.from(nil)
		time.Sleep(2 * restartPause)
		synctest.Wait()
		require.Len(t, r.times(), 3)
		require.Empty(t, r.state().err)
		time.Sleep(2 * time.Hour)
		require.Len(t, r.times(), 3, "it has worked")

		r.from(errors.New("no"))
		require.NoError(t, r.start())
		synctest.Wait()
		r.close()
		time.Sleep(2 * time.Hour)
		require.Len(t, r.times(), 4)
	})
	require.Equal(t, restarts{}, (*restarter)(nil).state())
}
