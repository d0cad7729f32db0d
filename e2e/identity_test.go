package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// admin asks the hub's admin endpoint.
func (f *fleet) admin(method, path string) (status int, body []byte) {
	f.t.Helper()
	var address string
	for _, v := range f.env {
		if a, ok := strings.CutPrefix(v, "COMFYHUB_ADMIN="); ok {
			address = a
		}
	}
	req, err := http.NewRequestWithContext(f.t.Context(), method, "http://"+address+path, nil)
	require.NoError(f.t, err)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	body, _ = io.ReadAll(resp.Body) // the test fails if part of it is missing
	return resp.StatusCode, body
}

func (f *fleet) logged(log, text string) func() bool {
	return func() bool {
		data, err := os.ReadFile(filepath.Join(f.dir, log+".log"))
		return err == nil && strings.Contains(string(data), text)
	}
}

// A stolen machine has the fleet's key. With it, it does not get the name of
// another machine, neither while that one is alive nor later. A machine that
// was set up again gets its name back from the operator.
func TestAnotherMachineOfOneName(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "embedded")
	f.env = append(f.env, "COMFYHUB_GOSSIP_KEY=the key of the whole fleet")
	f.startHub()
	mine := []string{"--state", filepath.Join(f.dir, "mine")}
	box := f.startAgent("box", 1, mine...)
	f.idle(1)
	jobs := []string{f.submit(0.1, 1)}
	f.succeeded(jobs)

	thief := f.start("thief", "agent", "run", "--join", f.gossip, "--name", "box", "--simulate", "1", "--state", filepath.Join(f.dir, "thiefs"))
	f.eventually(f.logged("hub", "the name belongs to an agent with another key"), "the hub says so")
	f.eventually(f.logged("thief", "a hub refuses this agent"), "and so does the agent")
	f.idle(1)
	jobs = append(jobs, f.submit(0.1, 2))
	f.succeeded(jobs)
	status, _ := f.admin(http.MethodPost, "/comfyhub/forget?agent=box")
	require.Equal(t, http.StatusConflict, status, "it is alive")

	box.kill()
	f.hub.kill()
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

	require.NoError(t, box.cmd.Process.Signal(syscall.SIGTERM))
	<-box.done
	f.eventually(refused, "nor does it when the machine leaves")
	status, body := f.admin(http.MethodPost, "/comfyhub/forget?agent=box")
	require.Equal(t, http.StatusOK, status, string(body))
	f.idle(1)
	f.succeeded(append(jobs, f.submit(0.1, 4)))
	thief.kill()
}
