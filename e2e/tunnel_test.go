package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

// token issues a token for a machine by the command that operators use, and returns its
// file.
func (f *fleet) token(machine string) string {
	f.t.Helper()
	token, err := exec.Command(f.Set.Caddy, "comfyhub-token", "add", machine, "--address", f.Admin).Output() // #nosec G204 -- our own program
	require.NoError(f.t, err)
	file := filepath.Join(f.t.TempDir(), machine)
	require.NoError(f.t, os.WriteFile(file, token, 0o600))
	return file
}

// pullFrom starts the agent of a machine whose way to the hub leads to an address.
func (f *fleet) pullFrom(machine, hub, comfyui string) *programs.Program {
	f.t.Helper()
	return f.agent(machine, "pull", "--hub", "http://"+hub, "--token-file", f.token(machine), "--comfyui", comfyui)
}

// Machines that nobody can dial run prompts like others, and go on when an agent or the hub dies.
func TestMachinesThatOnlyDialOut(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "embedded")
	f.startHub()
	attic := f.pullFrom("attic", f.Addr, f.simulate("attic"))
	f.pullFrom("cellar", f.Addr, f.simulate("cellar"))
	f.idle(2)
	ids := []string{f.submit(1, 1), f.submit(1, 2), f.submit(1, 3)}
	f.succeeded(ids)

	// The agent dies and comes back while its server works on.
	ids = append(ids, f.submit(30, 4), f.submit(30, 5))
	f.running(2)
	attic.Kill()
	require.NoError(t, attic.Restart())
	f.succeeded(ids)
	f.idle(2)
	f.attemptsOf(ids, 1)

	// The hub restarts: its machines find it again, and their runs go on.
	ids = append(ids, f.submit(30, 6), f.submit(30, 7))
	f.running(2)
	f.Hub.Kill()
	f.startHub()
	f.succeeded(ids)
	f.idle(2)

	// A machine whose token is revoked has nothing to say any more.
	require.NoError(t, exec.Command(f.Set.Caddy, "comfyhub-token", "revoke", "attic", "--address", f.Admin).Run()) // #nosec G204 -- our own program
	f.idle(1)
	f.succeeded(append(ids, f.submit(1, 8), f.submit(1, 9)))
}
