package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/freeport"
	"github.com/comfyhub/comfyhub/internal/testing/must"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
	"github.com/comfyhub/comfyhub/internal/testing/programs/programstest"
)

// command is an agent as somebody starts it, whose end nothing cleans up after.
func command(t *testing.T, path string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"HOME=" + t.TempDir(), "TMPDIR=" + t.TempDir()}
	return cmd
}

// playing starts an agent with a simulated server, and returns it with the server's URL and the
// simulator's process once the server answers.
func playing(t *testing.T, stopTimeout string) (agent *exec.Cmd, url string, simulator int, complaints *strings.Builder) {
	t.Helper()
	addresses := must.Get(freeport.Addresses(2))(t)
	hub := must.Get(freeport.Address())(t)
	_, port, err := net.SplitHostPort(addresses)
	require.NoError(t, err)
	agent = command(t, programstest.Built(t).Agent, "run", "--join", hub, "--simulate", "2", "--port", port, "--stop-timeout", stopTimeout)
	complaints = &strings.Builder{}
	agent.Stderr = complaints
	require.NoError(t, agent.Start())
	url = "http://" + addresses
	require.True(t, programs.Eventually(patience, func() bool { return answers(url) }), "the server is there")
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", agent.Process.Pid, agent.Process.Pid))
	if err != nil || len(strings.Fields(string(children))) == 0 {
		// The thread that has started it is another.
		all := must.Get(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", agent.Process.Pid)))(t)
		for _, file := range all {
			text, _ := os.ReadFile(file)
			children = append(children, text...)
		}
	}
	_, err = fmt.Sscan(string(children), &simulator)
	require.NoError(t, err, "the agent has a child")
	return agent, url, simulator, complaints
}

func answers(url string) bool {
	resp, err := http.Get(url + "/system_stats")
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}

// However an agent ends, its simulated servers end with it; and it with them.
func TestTheSimulatorEndsWithTheAgent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  func(agent, simulator int) error
		says string
	}{
		"killed":           {func(agent, _ int) error { return syscall.Kill(agent, syscall.SIGKILL) }, "signal: killed"},
		"asked to stop":    {func(agent, _ int) error { return syscall.Kill(agent, syscall.SIGTERM) }, ""},
		"simulator killed": {func(_, simulator int) error { return syscall.Kill(simulator, syscall.SIGKILL) }, "exit status 1"},
		"both asked to stop": {func(agent, simulator int) error {
			if err := syscall.Kill(simulator, syscall.SIGTERM); err != nil { // it waits for the agent
				return err
			}
			return syscall.Kill(agent, syscall.SIGTERM)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			agent, url, simulator, complaints := playing(t, "1s")
			require.NoError(t, c.end(agent.Process.Pid, simulator))
			if err := agent.Wait(); c.says == "" {
				require.NoError(t, err, complaints)
			} else {
				require.EqualError(t, err, c.says, complaints)
			}
			require.True(t, programs.Eventually(patience, func() bool { return !answers(url) }), "the servers are gone")
			require.Equal(t, name == "simulator killed", strings.Contains(complaints.String(), "agent: the simulator has ended"), complaints)
		})
	}
}

// "agent simulate" becomes the simulator: whoever has started it may kill or stop it.
func TestAgentSimulate(t *testing.T) {
	t.Parallel()
	cmd := command(t, programstest.Built(t).Agent, "simulate", "--port", "0", "--fault", "slow-http=1")
	out := must.Get(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	line := must.Get(bufio.NewReader(out).ReadString('\n'))(t)
	require.True(t, answers(strings.TrimSpace(line)), line)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait())
	require.False(t, answers(strings.TrimSpace(line)))

	for _, args := range [][]string{{"simulate", "--fault", "x"}, {"run", "--join", "127.0.0.1:1", "--simulate", "1", "--fault", "x"}} {
		said, err := command(t, programstest.Built(t).Agent, args...).CombinedOutput()
		require.EqualError(t, err, "exit status 1")
		require.Equal(t, "agent: --fault \"x\": unknown\n", string(said))
	}
}

// An agent that somebody has copied alone says what is missing.
func TestAgentWithoutSimulator(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile(programstest.Built(t).Agent))(t)
	alone := filepath.Join(t.TempDir(), "agent")
	require.NoError(t, os.WriteFile(alone, text, 0o700))
	for _, args := range [][]string{{"simulate"}, {"run", "--join", "127.0.0.1:1", "--simulate", "1"}} {
		said, err := command(t, alone, args...).CombinedOutput()
		require.EqualError(t, err, "exit status 1")
		require.Equal(t, "agent: simulated servers need the program comfysim, which is missing: put it into "+filepath.Dir(alone)+", or into a folder of the PATH (make build and the agent's archive have it)\n", string(said))
	}
	// A link to the agent is as good as the agent.
	link := filepath.Join(t.TempDir(), "agent")
	require.NoError(t, os.Symlink(programstest.Built(t).Agent, link))
	said, err := command(t, link, "simulate", "--count", "0").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(said), "want 1 to 1000 simulated servers")
}
