package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// The hub's own program is a client, too: it submits from a pipe, stores what comes, and
// its exit codes reach the shell.
func TestCommandsForPeople(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "embedded")
	f.startHub()
	f.startAgent("gpu", 1)
	f.idle(1)
	run := f.command
	const workflow = `{"1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 64, "batch_size": 1, "color": 5}},
		"2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "ComfyUI"}}}`
	stored, code := run(workflow, "submit", "-", "--set", "1.color=7", "--out", filepath.Join(t.TempDir(), "out"))
	require.Zero(t, code)
	require.Equal(t, "PNG", string(must.Get(os.ReadFile(stored))(t)[1:4]))

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

// command runs a command of the hub's program.
func (f *fleet) command(in string, args ...string) (shown string, code int) {
	f.t.Helper()
	cmd := exec.Command(f.Set.Caddy, append([]string{"comfyhub"}, args...)...) // #nosec G204 -- our own program
	cmd.Stdin = strings.NewReader(in)
	cmd.Env = append(os.Environ(), "COMFYHUB_URL="+f.URL(""))
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		var exited *exec.ExitError
		require.ErrorAs(f.t, err, &exited)
	}
	f.t.Log(errors.String())
	return strings.TrimSpace(string(out)), cmd.ProcessState.ExitCode()
}

// A hub whose queue was lost does not know the files of its storage. It says so until the
// operator gives it the storage.
func TestAdoptStorage(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "embedded")
	f.startHub()
	f.startAgent("gpu", 1)
	f.idle(1)
	f.succeeded([]string{f.submit(0.1, 1), f.submit(0.1, 2)})
	shown, code := f.command("", "adopt-storage", "--address", f.Admin)
	require.Zero(t, code)
	require.Equal(t, "the storage belongs to the hub's Redis already", shown)

	f.Hub.Kill()
	journal := must.Get(filepath.Glob(filepath.Join(f.Data, "queue.aof*")))(t)
	require.NotEmpty(t, journal)
	for _, name := range journal {
		require.NoError(t, os.Remove(name))
	}
	f.startHub()
	f.idle(1)
	const found = "the storage belongs to another Redis, or this one has lost everything"
	shown, code = f.command("", "check", "--address", f.Admin)
	require.NotZero(t, code)
	require.Contains(t, shown, found)
	shown, code = f.command("", "adopt-storage", "--address", f.Admin)
	require.Zero(t, code)
	require.Contains(t, shown, found)
	require.Contains(t, shown, "of 2 files that were looked at, Redis does not know 2")
	require.Contains(t, shown, "nothing was changed")
	f.succeeded([]string{f.submit(0.1, 3)})
	shown, code = f.command("", "adopt-storage", "--yes", "--address", f.Admin)
	require.Zero(t, code)
	require.Contains(t, shown, "the storage belongs to the hub's Redis now")
	shown, _ = f.command("", "check", "--address", f.Admin)
	require.NotContains(t, shown, found)
}
