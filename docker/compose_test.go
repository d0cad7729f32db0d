// Package docker_test checks what the compose file promises of its secrets, and the alert
// rules and dashboards.

package docker_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/comfyhub/comfyhub/internal/testing/must"
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
	require.Equal(t, fs.FileMode(0o400), must.Get(os.Stat(path))(t).Mode().Perm())
	return strings.TrimSpace(string(must.Get(os.ReadFile(path))(t)))
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
	require.Len(t, must.Get(os.ReadDir(filepath.Join(one, "hub")))(t), 1, "no other copy is left")
	require.Error(t, run(t, filepath.Join(one, "nowhere"), ""))
}

// composeFile is what the tests read of the compose file.
type composeFile struct {
	Services map[string]struct {
		Environment                                 map[string]string
		Volumes, Profiles, Command, Networks, Ports []string
		Network                                     string         `yaml:"network_mode"`
		Needs                                       map[string]any `yaml:"depends_on"`
		Deploy                                      struct {
			Resources struct{ Reservations struct{ Devices []device } }
		}
	}
	Networks map[string]struct{ Internal bool }
}

type device struct {
	Driver       string
	Capabilities []string
}

func composed(t *testing.T) (file composeFile) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal(must.Get(os.ReadFile("compose.yaml"))(t), &file))
	return file
}

// The secret of the hub is in no container but the hub's, and no secret has a
// default.
func TestComposeKeepsSecretsApart(t *testing.T) {
	t.Parallel()
	file := composed(t)
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
	file := composed(t)
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

// Only hubs and the bridge share a network with the queue: no ComfyUI, no agent.
func TestComposeKeepsTheQueueApart(t *testing.T) {
	t.Parallel()
	file := composed(t)
	networks := map[string][]string{}
	for name, service := range file.Services {
		switch {
		case service.Network != "":
			networks[service.Network] = append(networks[service.Network], name)
		case len(service.Networks) == 0:
			networks["default"] = append(networks["default"], name)
		}
		for _, network := range service.Networks {
			networks[network] = append(networks[network], name)
		}
	}
	require.ElementsMatch(t, []string{"redis", "hub", "botbridge"}, networks["queue"])
	require.NotContains(t, networks["default"], "redis")
	require.ElementsMatch(t, []string{"keys"}, networks["none"])
	require.ElementsMatch(t, []string{"gpu-agent"}, networks["service:comfyui"])
	require.Empty(t, file.Services["redis"].Ports)
	require.Contains(t, file.Services["redis"].Needs, "keys")
	require.True(t, file.Networks["queue"].Internal)
}

// The users that are made at the first start let the hub do everything, the bridge reach its
// own keys, and nobody else in.
func TestRedisOfTheComposeFile(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("no redis-server here")
	}
	folder := volumes(t)
	require.NoError(t, run(t, folder, ""))
	socket := filepath.Join(t.TempDir(), "redis.sock") // no port that others could want
	cmd := exec.CommandContext(t.Context(), program, filepath.Join(folder, "redis", "redis.conf"), "--port", "0", "--unixsocket", socket, "--dir", t.TempDir(), "--save", "")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	client := func(url string) *redis.Client {
		o := &redis.Options{Network: "unix", Addr: socket}
		if url != "" {
			parsed := must.Get(redis.ParseURL(url))(t)
			require.Equal(t, "redis:6379", parsed.Addr)
			o.Username, o.Password = parsed.Username, parsed.Password
		}
		c := redis.NewClient(o)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	hub, bot, nobody := client(content(t, folder, "redis-hub/url")), client(content(t, folder, "redis-bot/url")), client("")
	ctx := t.Context()
	require.Eventually(t, func() bool { return hub.Ping(ctx).Err() == nil }, time.Minute, 20*time.Millisecond)
	require.NoError(t, hub.HSet(ctx, "{comfyhub}:g:apikeys", "ada", "x").Err())
	require.NoError(t, hub.Info(ctx, "persistence").Err())

	const write = `return redis.call('SET', KEYS[1] .. ARGV[1], '1')`
	require.NoError(t, bot.Eval(ctx, write, []string{"{botbridge}:"}, "chats").Err())
	require.NoError(t, bot.Info(ctx, "persistence").Err())
	for _, refused := range []error{
		bot.Eval(ctx, `return redis.call('SET', '{comfyhub}:' .. ARGV[1], '1')`, []string{"{botbridge}:"}, "x").Err(),
		bot.HSet(ctx, "{comfyhub}:g:apikeys", "eve", "x").Err(),
		bot.Get(ctx, "{comfyhub}:g:apikeys").Err(),
		bot.ConfigSet(ctx, "dir", "/").Err(),
		bot.FlushAll(ctx).Err(),
		bot.Publish(ctx, "{comfyhub}:s:hubs", "left").Err(),
	} {
		require.Error(t, refused)
		require.Regexp(t, "permission|can't access", refused.Error())
	}
	err = nobody.HSet(ctx, "{comfyhub}:g:apikeys", "eve", "x").Err()
	require.Error(t, err)
	require.True(t, strings.HasPrefix(err.Error(), "NOAUTH"), err)
}

// image is a line that names an image with a tag.
var image = regexp.MustCompile(`(?m)^(?:FROM| *image:) +([a-z0-9./-]+:[\w.-]+)(@sha256:[0-9a-f]{64})?(?: .*)?$`)

func filesWithImages(t *testing.T) []string {
	t.Helper()
	files := []string{"compose.yaml"}
	for _, pattern := range []string{"*.Dockerfile", "kubernetes/*.yaml", "helm/values.yaml"} {
		found := must.Get(filepath.Glob(pattern))(t)
		require.NotEmpty(t, found)
		files = append(files, found...)
	}
	return files
}

// Whoever moves a tag does not change what is built or run here.
func TestImagesAreNamedByDigest(t *testing.T) {
	t.Parallel()
	digests := map[string]string{}
	for _, file := range filesWithImages(t) {
		text := must.Get(os.ReadFile(file))(t)
		for _, found := range image.FindAllStringSubmatch(string(text), -1) {
			require.NotEmpty(t, found[2], "%s: %s has no digest", file, found[1])
			if digests[found[1]] == "" {
				digests[found[1]] = found[2]
			}
			require.Equal(t, digests[found[1]], found[2], "%s: %s", file, found[1])
		}
	}
	require.Len(t, digests, 5)
}

func TestPinRenewsDigests(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("no sh here")
	}
	folder := t.TempDir()
	renewed := "@sha256:" + strings.Repeat("ab", 32)
	docker := "#!/bin/sh\n[ \"$1 $2 $3\" = 'buildx imagetools inspect' ] && echo " + renewed[1:] + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(folder, "docker"), []byte(docker), 0o700))
	for _, file := range filesWithImages(t) {
		before := must.Get(os.ReadFile(file))(t)
		pinned := filepath.Join(folder, filepath.Base(file))
		require.NoError(t, os.WriteFile(pinned, before, 0o600))
		cmd := exec.CommandContext(t.Context(), "sh", "pin.sh", pinned)
		cmd.Env = append(os.Environ(), "PATH="+folder+string(filepath.ListSeparator)+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		after := must.Get(os.ReadFile(pinned))(t)
		require.Equal(t, regexp.MustCompile("@sha256:[0-9a-f]{64}").ReplaceAllString(string(before), renewed), string(after))
	}
}
