package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/freeport"
)

// patience bounds every wait. It is long because a machine that runs other
// tests is slow.
const patience = 90 * time.Second

// programs are the binaries under test, built once.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "comfyhub-e2e-")
	if err != nil {
		return "", err
	}
	return dir, build("..", dir)
})

// build builds the programs of a source tree into a folder.
func build(tree, dir string) error {
	for name, pkg := range map[string]string{"caddy": "./caddymodule/caddy", "agent": "./agent"} {
		build := exec.Command("go", "build", "-tags", "nobadger,nomysql,nopgx", "-ldflags", "-s -w", "-o", filepath.Join(dir, name), pkg)
		build.Dir, build.Env = tree, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	return nil
}

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, _ := programs(); dir != "" {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// fleet is a hub and its agents, each a process of its own.
type fleet struct {
	t       *testing.T
	dir     string
	addr    string
	env     []string
	gossip  string
	program string // folder of the programs
	config  string // the Caddyfile
	hub     *process
}

// newFleet chooses ports and starts nothing. redis is a URL or "embedded".
func newFleet(t *testing.T, redis string) *fleet {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and starts the real programs")
	}
	program, err := programs()
	require.NoError(t, err)
	return fleetOf(t, redis, program, "../Caddyfile")
}

// fleetOf is newFleet with the programs of a folder and a Caddyfile.
func fleetOf(t *testing.T, redis, program, config string) *fleet {
	t.Helper()
	f := &fleet{t: t, dir: t.TempDir(), program: program, config: config, addr: freePort(t), gossip: freePort(t)}
	f.env = append(os.Environ(),
		"COMFYHUB_ADDR="+f.addr, "COMFYHUB_REDIS="+redis, "COMFYHUB_GOSSIP="+f.gossip,
		"COMFYHUB_ADMIN="+freePort(t), "COMFYHUB_DATA="+filepath.Join(f.dir, "data"),
		"COMFYHUB_GOSSIP_KEY=", "COMFYHUB_FRONTEND=",
		"XDG_CONFIG_HOME="+f.dir, "XDG_DATA_HOME="+f.dir)
	return f
}

func freePort(t *testing.T) string {
	t.Helper()
	address, err := freeport.Address()
	require.NoError(t, err)
	return address
}

// startHub starts the hub and waits until it answers.
func (f *fleet) startHub() {
	f.t.Helper()
	f.hub = f.start("hub", "caddy", "run", "--config", f.config)
	f.eventually(func() bool {
		resp, err := http.Get(f.url("/queue"))
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, "the hub answers")
}

// startAgent starts an agent with simulated instances.
func (f *fleet) startAgent(name string, count int, args ...string) *process {
	f.t.Helper()
	return f.start(name, "agent", append([]string{
		"run", "--join", f.gossip, "--name", name, "--simulate", fmt.Sprint(count), "--time-scale", "0.2",
	}, args...)...)
}

// process is a running program whose output goes to a file.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

func (f *fleet) start(log, program string, args ...string) *process {
	f.t.Helper()
	out, err := os.OpenFile(filepath.Join(f.dir, log+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(f.t, err)
	defer out.Close()
	p := &process{cmd: exec.Command(filepath.Join(f.program, program), args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = out, out, f.env
	require.NoError(f.t, p.cmd.Start())
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // killing it is the point
	}()
	f.t.Cleanup(func() {
		p.kill()
		if f.t.Failed() {
			f.showLog(log)
		}
	})
	return p
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (f *fleet) showLog(log string) {
	data, err := os.ReadFile(filepath.Join(f.dir, log+".log"))
	if err == nil {
		lines := strings.Split(string(data), "\n")
		f.t.Logf("%s:\n%s", log, strings.Join(lines[max(0, len(lines)-40):], "\n"))
	}
}

func (f *fleet) url(path string) string { return "http://" + f.addr + path }

func (f *fleet) eventually(condition func() bool, what string) {
	f.t.Helper()
	require.Eventually(f.t, condition, patience, 20*time.Millisecond, what)
}

// get reads JSON into v and reports whether it was there.
func (f *fleet) get(path string, v any) bool {
	f.t.Helper()
	resp, err := http.Get(f.url(path))
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return err == nil && resp.StatusCode == http.StatusOK && json.Unmarshal(body, v) == nil
}

// idle waits until count instances can take a job.
func (f *fleet) idle(count int) {
	f.t.Helper()
	f.eventually(func() bool {
		var instances []struct{ State string }
		if !f.get("/hub/instances", &instances) {
			return false
		}
		n := 0
		for _, i := range instances {
			if i.State == "idle" {
				n++
			}
		}
		return n == count
	}, fmt.Sprintf("%d instances are idle", count))
}

// submit posts work of some (simulated) seconds and returns its id.
func (f *fleet) submit(seconds float64, nonce int) string {
	f.t.Helper()
	body := fmt.Sprintf(`{"client_id": "c%d", "prompt": {
		"1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 64, "batch_size": 1, "color": %d}},
		"2": {"class_type": "SimulatedWork", "inputs": {"image": ["1", 0], "seconds": %g, "steps": 5, "nonce": %d}},
		"3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "ComfyUI"}}}}`, nonce, nonce, seconds, nonce)
	resp, err := http.Post(f.url("/prompt"), "application/json", strings.NewReader(body))
	require.NoError(f.t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(f.t, err)
	require.Equal(f.t, http.StatusOK, resp.StatusCode, string(answer))
	var accepted struct {
		ID string `json:"prompt_id"`
	}
	require.NoError(f.t, json.Unmarshal(answer, &accepted))
	return accepted.ID
}

// running waits until instances execute count jobs.
func (f *fleet) running(count int) {
	f.t.Helper()
	f.eventually(func() bool {
		var jobs []struct {
			Status  string
			Started float64 `json:"started_at"`
		}
		if !f.get("/hub/jobs", &jobs) {
			return false
		}
		n := 0
		for _, j := range jobs {
			if j.Status == "running" && j.Started > 0 {
				n++
			}
		}
		return n == count
	}, fmt.Sprintf("%d jobs run", count))
}

// succeeded waits until all jobs are in the history as successful, each once.
func (f *fleet) succeeded(ids []string) {
	f.t.Helper()
	var all map[string]struct {
		Status  struct{ Completed bool }
		Outputs map[string]struct {
			Images []struct{ Filename, Subfolder, Type string }
		}
	}
	f.eventually(func() bool {
		all = nil
		return f.get("/history", &all) && len(all) == len(ids)
	}, "all jobs end")
	names := map[string]bool{}
	for _, id := range ids {
		require.True(f.t, all[id].Status.Completed, id)
		image := all[id].Outputs["3"].Images[0]
		require.False(f.t, names[image.Filename], "two jobs show one file")
		names[image.Filename] = true
		resp, err := http.Get(f.url("/view?filename=" + image.Filename + "&type=" + image.Type))
		require.NoError(f.t, err)
		resp.Body.Close()
		require.Equal(f.t, http.StatusOK, resp.StatusCode)
	}
}

// attemptsOf checks how often each job was begun.
func (f *fleet) attemptsOf(ids []string, attempts int) {
	f.t.Helper()
	for _, id := range ids {
		var j struct{ Attempts int }
		require.True(f.t, f.get("/hub/jobs/"+id, &j))
		require.Equal(f.t, attempts, j.Attempts, "attempts of %s", id)
	}
}
