package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/freeport"
	"github.com/comfyhub/comfyhub/internal/testing/must"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
	"github.com/comfyhub/comfyhub/internal/testing/programs/programstest"
)

// patience bounds every wait. It is long because a machine that runs other
// tests is slow.
const patience = 4 * time.Minute

func TestMain(m *testing.M) { programstest.Main(m) }

// fleet is a hub and its agents, each a process of its own.
type fleet struct {
	t *testing.T
	*programs.Fleet
}

// newFleet chooses ports and starts nothing. redis is a URL or "embedded".
func newFleet(t *testing.T, redis string) *fleet {
	t.Helper()
	return fleetOf(t, programstest.Built(t), redis)
}

// fleetOf is newFleet with the programs of any version.
func fleetOf(t *testing.T, set programs.Set, redis string) *fleet {
	t.Helper()
	return &fleet{t, programstest.NewFleet(t, set, redis)}
}

// configure adds a line to the app's block, for a hub that has not started yet.
func (f *fleet) configure(line string) {
	f.t.Helper()
	text := must.Get(os.ReadFile(f.Set.Caddyfile))(f.t)
	const data = "data {$COMFYHUB_DATA:./data}\n"
	require.Contains(f.t, string(text), data)
	f.Set.Caddyfile = filepath.Join(f.Dir, "more.Caddyfile")
	text = []byte(strings.Replace(string(text), data, data+"\t\t"+line+"\n", 1))
	require.NoError(f.t, os.WriteFile(f.Set.Caddyfile, text, 0o600))
}

// startHub starts the hub, for the first time or again, and waits until it is
// ready.
func (f *fleet) startHub() {
	f.t.Helper()
	require.NoError(f.t, f.StartHub(f.t.Context()))
}

// startAgent starts an agent with simulated instances.
func (f *fleet) startAgent(name string, count int, flags ...string) *programs.Program {
	f.t.Helper()
	return must.Get(f.StartAgent(name, count, append([]string{"--time-scale", "0.2"}, flags...)...))(f.t)
}

// agent starts the program agent in any other way.
func (f *fleet) agent(name string, args ...string) *programs.Program {
	f.t.Helper()
	return must.Get(f.Start(programs.Spec{Name: name, Path: f.Set.Agent, Args: args}))(f.t)
}

// simulate starts a simulated instance without an agent, and returns its URL. The name is
// that of its log.
func (f *fleet) simulate(name string) string {
	f.t.Helper()
	address := must.Get(freeport.Address())(f.t)
	_, port, err := net.SplitHostPort(address)
	require.NoError(f.t, err)
	f.agent(name+"-comfyui", "simulate", "--count", "1", "--port", port, "--time-scale", "0.2", "--log-level", "debug")
	return "http://" + address
}

func (f *fleet) eventually(condition func() bool, what string) {
	f.t.Helper()
	require.True(f.t, programs.Eventually(patience, condition), "waiting until "+what)
}

// get reads JSON into v and reports whether it was there.
func (f *fleet) get(path string, v any) bool {
	f.t.Helper()
	resp, err := http.Get(f.URL(path))
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
	must.Get(f.AwaitIdle(f.t.Context(), count))(f.t)
}

// submit posts work of some (simulated) seconds and returns its id.
func (f *fleet) submit(seconds float64, nonce int) string {
	f.t.Helper()
	body := fmt.Sprintf(`{"client_id": "c%d", "prompt": {
		"1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 64, "batch_size": 1, "color": %d}},
		"2": {"class_type": "SimulatedWork", "inputs": {"image": ["1", 0], "seconds": %g, "steps": 5, "nonce": %d}},
		"3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "ComfyUI"}}}}`, nonce, nonce, seconds, nonce)
	resp := must.Get(http.Post(f.URL("/prompt"), "application/json", strings.NewReader(body)))(f.t)
	defer resp.Body.Close()
	answer := must.Get(io.ReadAll(resp.Body))(f.t)
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
		resp := must.Get(http.Get(f.URL("/view?filename=" + image.Filename + "&type=" + image.Type)))(f.t)
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
