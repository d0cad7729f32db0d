package agent

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAgentsKeepTheirIdentity(t *testing.T) {
	t.Parallel()
	none := func(string) (string, bool) { return "", false }
	folder := filepath.Join(t.TempDir(), "state")
	of := func(name, key, state string, lookup func(string) (string, bool)) string {
		t.Helper()
		id, err := identity(name, key, state, lookup)
		require.NoError(t, err)
		return id.Key()
	}
	box := of("box", "k", folder, none)
	require.Equal(t, box, of("box", "k", folder, none))
	require.Equal(t, box, of("box", "", folder, none), "asked for, it lasts without a key too")
	require.NotEqual(t, box, of("other", "k", folder, none), "agents of one machine are not each other")
	require.Equal(t, box, of("box", "k", "", func(name string) (string, bool) {
		require.Equal(t, "STATE_DIRECTORY", name)
		return folder + string(os.PathListSeparator) + "/elsewhere", true
	}))
	require.NotEqual(t, of("box", "", "", none), of("box", "", "", none), "without a key nobody keeps a name")

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := identity("box", "k", file, none)
	require.ErrorContains(t, err, "--state")

	pinned := func(given string) error {
		_, err := hubPin("box", "k", given, folder, discard(), none)
		return err
	}
	require.ErrorContains(t, pinned("no key"), "caddy comfyhub hub-key")
	require.NoError(t, pinned(box)) // any public key will do
	text, err := os.ReadFile(filepath.Join(folder, "box.hub"))
	require.NoError(t, err)
	require.Equal(t, box+"\n", string(text), "the key of the hubs lies beside the agent's own")

	cmd := newCommand()
	cmd.SetArgs([]string{"run", "--join", "127.0.0.1:1", "--name", "box", "--state", file, "--comfyui", "http://127.0.0.1:1"})
	cmd.SetErr(io.Discard)
	require.ErrorContains(t, cmd.ExecuteContext(t.Context()), "--state")
}
