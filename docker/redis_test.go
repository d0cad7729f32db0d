package docker_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// Only hubs and the bridge share a network with the queue: no ComfyUI, no agent.
func TestComposeKeepsTheQueueApart(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("compose.yaml")
	require.NoError(t, err)
	var file struct {
		Services map[string]struct {
			Networks []string
			Ports    []string
			Network  string         `yaml:"network_mode"`
			Needs    map[string]any `yaml:"depends_on"`
		}
		Networks map[string]struct{ Internal bool }
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
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
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	client := func(url string) *redis.Client {
		o := &redis.Options{Network: "unix", Addr: socket}
		if url != "" {
			parsed, err := redis.ParseURL(url)
			require.NoError(t, err)
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
