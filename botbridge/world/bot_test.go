package world_test

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/bridge"
	"github.com/comfyhub/comfyhub/botbridge/internal/config"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakediscord"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakellm"
	"github.com/comfyhub/comfyhub/system"
)

// options are those of a rig.
type options struct {
	Fake    fakebot.Options
	Discord fakediscord.Options
	// Config is bot.yaml, in which BRIDGE_URL stands for the bridge's own address.
	Config string
	// Services are others that the bridge calls, by host.
	Services map[string]http.Handler
}

// bot is a process of the bridge on a host of its own. Its state is in the world's Redis.
type bot struct {
	w      *system.World
	name   string
	config string
	log    *slog.Logger
	stop   context.CancelFunc
	ended  chan struct{}
}

// Start starts the process.
func (b *bot) Start(t testing.TB) {
	t.Helper()
	c, err := config.Read(b.config)
	require.NoError(t, err)
	c.Hub, c.HubKey = b.w.Hubs[0].URL(), config.Secret{File: "hub_key"}
	// go-redis shares the timers of those who wait for a connection between all bubbles, so nobody may wait.
	c.Redis = "redis://redis:6379?pool_size=1000"
	if c.Telegram != nil {
		c.Telegram.Server, c.Telegram.Token = "http://telegram", config.Secret{File: "telegram_token"}
	}
	if c.Discord != nil {
		c.Discord.Server, c.Discord.Token = "http://discord/api/v10", config.Secret{File: "discord_token"}
	}
	var ctx context.Context
	ctx, b.stop = context.WithCancel(context.Background())
	running, err := bridge.New(ctx, c, b.log, b.w.Net.Dialer(b.name))
	require.NoError(t, err)
	l, err := b.w.Net.Listen(b.name + ":80")
	require.NoError(t, err)
	ended := make(chan struct{})
	b.ended = ended
	go func() {
		defer close(ended)
		_ = running.Serve(ctx, l) // a killed process finds that all is broken
	}()
}

// Kill is kill -9: from now on the process reaches nobody.
func (b *bot) Kill() {
	b.w.Net.Kill(b.name)
	b.stop()
	<-b.ended
}

// host serves HTTP at a host of the world's network.
func host(t testing.TB, w *system.World, name string, h http.Handler) *http.Server {
	t.Helper()
	l, err := w.Net.Listen(name + ":80")
	require.NoError(t, err)
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.Serve(l) }()
	return s
}

// journal keeps what was logged.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

const hubKey = "the-secret-of-the-site"

// writeConfig writes bot.yaml, its workflows and its secrets to a folder.
func writeConfig(t testing.TB, text string) string {
	t.Helper()
	folder := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	for _, from := range []string{"../../examples/bot", "testdata"} {
		files, err := filepath.Glob(filepath.Join(from, "*.json"))
		require.NoError(t, err)
		for _, file := range files {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			write(filepath.Base(file), string(data))
		}
	}
	write("hub_key", hubKey)
	write("telegram_token", fakebot.Token)
	write("discord_token", fakediscord.Token)
	write("secret", secret)
	write("llm_key", fakellm.Key)
	write("bot.yaml", strings.ReplaceAll(text, "BRIDGE_URL", "http://bridge"))
	return filepath.Join(folder, "bot.yaml")
}

// web is a program that calls the bridge and the hub.
func (r *rig) web() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: r.w.Net.Dialer("page"), DisableKeepAlives: true}}
}

// models are those that the examples' workflows name.
func models() map[string][]string {
	return map[string][]string{"checkpoints": {"v1-5-pruned-emaonly-fp16.safetensors", "v1-5-pruned-emaonly.safetensors", "sd_xl_base_1.0.safetensors"}}
}
