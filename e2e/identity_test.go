package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/programs"
)

// admin asks the hub's admin endpoint.
func (f *fleet) admin(method, path string) (status int, body []byte) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), method, "http://"+f.Admin+path, nil)
	require.NoError(f.t, err)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	body, _ = io.ReadAll(resp.Body) // the test fails if part of it is missing
	return resp.StatusCode, body
}

func logged(p *programs.Program, text string) func() bool {
	return func() bool { return strings.Contains(p.Log(), text) }
}

// A stolen machine has the fleet's key. With it, it does not get the name of
// another machine, neither while that one is alive nor later. A machine that
// was set up again gets its name back from the operator.
func TestAnotherMachineOfOneName(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "embedded")
	f.Env = append(f.Env, "COMFYHUB_GOSSIP_KEY=the key of the whole fleet")
	f.startHub()
	mine := []string{"--state", filepath.Join(f.Dir, "mine")}
	box := f.startAgent("box", 1, mine...)
	f.idle(1)
	jobs := []string{f.submit(0.1, 1)}
	f.succeeded(jobs)

	thief := f.agent("thief", "run", "--join", f.Gossip, "--name", "box", "--simulate", "1", "--state", filepath.Join(f.Dir, "thiefs"))
	f.eventually(logged(f.Hub, "the name belongs to an agent with another key"), "the hub says so")
	f.eventually(logged(thief, "a hub refuses this agent"), "and so does the agent")
	f.idle(1)
	jobs = append(jobs, f.submit(0.1, 2))
	f.succeeded(jobs)
	status, _ := f.admin(http.MethodPost, "/comfyhub/forget?agent=box")
	require.Equal(t, http.StatusConflict, status, "it is alive")

	box.Kill()
	f.Hub.Kill()
	f.startHub()
	refused := func() bool {
		var list []struct{ Name, State, Reason string }
		_, body := f.admin(http.MethodGet, "/comfyhub/instances")
		return json.Unmarshal(body, &list) == nil && len(list) == 1 && list[0].State == "offline" &&
			strings.Contains(list[0].Reason, "POST /comfyhub/forget?agent=box")
	}
	f.eventually(refused, "the thief is refused by a hub that has never seen the machine")
	box = f.startAgent("box", 1, mine...)
	f.idle(1)
	jobs = append(jobs, f.submit(0.1, 3))
	f.succeeded(jobs)

	box.Stop()
	f.eventually(refused, "nor does it when the machine leaves")
	status, body := f.admin(http.MethodPost, "/comfyhub/forget?agent=box")
	require.Equal(t, http.StatusOK, status, string(body))
	f.idle(1)
	f.succeeded(append(jobs, f.submit(0.1, 4)))
}
