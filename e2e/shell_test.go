package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The hub's own program is a client, too: it submits from a pipe, stores what comes, and
// its exit codes reach the shell.
func TestCommandsForPeople(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "embedded")
	f.startHub()
	f.startAgent("gpu", 1)
	f.idle(1)
	run := func(in string, args ...string) (string, int) {
		cmd := exec.Command(f.Set.Caddy, append([]string{"comfyhub"}, args...)...) // #nosec G204 -- our own program
		cmd.Stdin = strings.NewReader(in)
		cmd.Env = append(os.Environ(), "COMFYHUB_URL="+f.URL(""))
		var errors strings.Builder
		cmd.Stderr = &errors
		out, err := cmd.Output()
		if err != nil {
			var exited *exec.ExitError
			require.ErrorAs(t, err, &exited)
		}
		t.Log(errors.String())
		return strings.TrimSpace(string(out)), cmd.ProcessState.ExitCode()
	}
	const workflow = `{"1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 64, "batch_size": 1, "color": 5}},
		"2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "ComfyUI"}}}`
	stored, code := run(workflow, "submit", "-", "--set", "1.color=7", "--out", filepath.Join(t.TempDir(), "out"))
	require.Zero(t, code)
	data, err := os.ReadFile(stored)
	require.NoError(t, err)
	require.Equal(t, "PNG", string(data[1:4]))

	id, code := run(workflow, "submit", "-")
	require.Zero(t, code)
	_, code = run("", "logs", "-f", id)
	require.Zero(t, code)
	shown, code := run("", "status", id)
	require.Zero(t, code)
	require.Contains(t, shown, "completed")
	shown, code = run("", "check", "--address", f.Admin)
	require.Zero(t, code, shown)
	require.Contains(t, shown, "ok       instances  the only server is well")
	for _, c := range []struct {
		code int
		args []string
	}{{1, []string{"status", "none"}}, {2, []string{"submit"}}, {2, []string{"--none"}}, {2, []string{"none"}}, {4, []string{"status", id, "--hub", "http://127.0.0.1:1"}}} {
		_, code = run("", c.args...)
		require.Equal(t, c.code, code, c.args)
	}
}
