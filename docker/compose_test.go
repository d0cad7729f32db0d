// Package docker_test checks what the compose file promises of its secrets, and the alert
// rules and dashboards.
package docker_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// run runs the script of the service "keys" on a folder.
func run(t *testing.T, folder, gossipKey string) error {
	t.Helper()
	owner := fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())
	cmd := exec.CommandContext(t.Context(), "sh", "make-keys.sh", folder, owner, owner)
	cmd.Env = append(os.Environ(), "COMFYHUB_GOSSIP_KEY="+gossipKey)
	out, err := cmd.CombinedOutput()
	if err == nil {
		require.Empty(t, string(out))
	}
	return err
}

func volumes(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("no sh here")
	}
	folder := t.TempDir()
	for _, name := range []string{"gossip", "hub", "tenant", "redis", "redis-hub", "redis-bot"} {
		require.NoError(t, os.Mkdir(filepath.Join(folder, name), 0o700))
	}
	return folder
}

func content(t *testing.T, folder, name string) string {
	t.Helper()
	path := filepath.Join(folder, name)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o400), info.Mode().Perm())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return strings.TrimSpace(string(text))
}

func TestKeysAreMadeOnce(t *testing.T) {
	t.Parallel()
	one, two := volumes(t), volumes(t)
	require.NoError(t, run(t, one, ""))
	require.NoError(t, run(t, two, ""))
	key, secret, tenant := content(t, one, "gossip/key"), content(t, one, "hub/secret"), content(t, one, "tenant/secret")
	all := map[string]bool{key: true, secret: true, tenant: true}
	for _, name := range []string{"gossip/key", "hub/secret", "tenant/secret"} {
		all[content(t, two, name)] = true
	}
	require.Len(t, all, 6, "each is another")
	for text := range all {
		require.Len(t, text, 44, "32 bytes in base64")
	}
	require.NoError(t, run(t, one, ""))
	require.Equal(t, key, content(t, one, "gossip/key"))
	require.Equal(t, secret, content(t, one, "hub/secret"))
	require.Equal(t, tenant, content(t, one, "tenant/secret"))

	// A key of the operator's takes its place, and stays.
	for _, given := range []string{"a key that the operator has chosen", ""} {
		require.NoError(t, run(t, one, given))
		require.Equal(t, "a key that the operator has chosen", content(t, one, "gossip/key"))
		require.Equal(t, secret, content(t, one, "hub/secret"))
	}
	entries, err := os.ReadDir(filepath.Join(one, "hub"))
	require.NoError(t, err)
	require.Len(t, entries, 1, "no other copy is left")
	require.Error(t, run(t, filepath.Join(one, "nowhere"), ""))
}

// The secret of the hub is in no container but the hub's, and no secret has a
// default.
func TestComposeKeepsSecretsApart(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("compose.yaml")
	require.NoError(t, err)
	var file struct {
		Services map[string]struct {
			Environment map[string]string
			Volumes     []string
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	mounts := map[string][]string{}
	for name, service := range file.Services {
		for _, volume := range service.Volumes {
			source, rest, _ := strings.Cut(volume, ":")
			mounts[source] = append(mounts[source], name)
			if name != "keys" && strings.HasPrefix(rest, "/run/comfyhub/") {
				require.True(t, strings.HasSuffix(rest, ":ro"), "%s: %s", name, volume)
			}
		}
		for variable, value := range service.Environment {
			if !strings.HasSuffix(variable, "_FILE") && (strings.Contains(variable, "KEY") || strings.Contains(variable, "SECRET")) {
				require.Equal(t, "${"+variable+":-}", value, name)
			}
		}
	}
	require.ElementsMatch(t, []string{"keys", "hub"}, mounts["hub-secret"])
	require.ElementsMatch(t, []string{"keys", "hub", "botbridge"}, mounts["tenant-secret"])
	require.ElementsMatch(t, []string{"keys", "redis"}, mounts["redis-users"])
	require.ElementsMatch(t, []string{"keys", "hub"}, mounts["redis-hub"])
	require.ElementsMatch(t, []string{"keys", "botbridge"}, mounts["redis-bot"])
	require.ElementsMatch(t, []string{"keys", "hub", "agent", "gpu-agent"}, mounts["gossip-key"])
}

// The profile nvidia has a ComfyUI with GPUs that only its agent reaches, and starts nothing
// simulated.
func TestComposeForNVIDIA(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("compose.yaml")
	require.NoError(t, err)
	type device struct {
		Driver       string
		Capabilities []string
	}
	type service struct {
		Profiles []string
		Command  []string
		Network  string `yaml:"network_mode"`
		Ports    []string
		Needs    map[string]any `yaml:"depends_on"`
		Deploy   struct {
			Resources struct{ Reservations struct{ Devices []device } }
		}
	}
	var file struct{ Services map[string]service }
	require.NoError(t, yaml.Unmarshal(text, &file))
	server, agent := file.Services["comfyui"], file.Services["gpu-agent"]
	require.Equal(t, []string{"nvidia"}, server.Profiles)
	require.Equal(t, []string{"nvidia"}, agent.Profiles)
	require.Equal(t, []device{{"nvidia", []string{"gpu"}}}, server.Deploy.Resources.Reservations.Devices)
	require.Empty(t, server.Ports)
	require.Equal(t, "service:comfyui", agent.Network)
	require.Contains(t, agent.Command, "http://127.0.0.1:8188")
	require.NotContains(t, agent.Needs, "agent")
	require.Contains(t, agent.Needs, "hub")
	simulated := file.Services["agent"]
	require.Empty(t, simulated.Profiles)
	require.Contains(t, simulated.Command, "--simulate")
}
