package world_test

import (
	"context"
	"fmt"
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
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
	"github.com/comfyhub/comfyhub/system"
)

// patience bounds every wait, in the time of the world.
const patience = 20 * time.Minute

func TestMain(m *testing.M) { leaktest.Main(m) }

// botYAML is the bot.yaml of the tests.
const botYAML = `
telegram: {rate: 10}
limits:
  waiting: 6
  messages_per_10s: 60
  admins: ["telegram:1"]
  block_users: ["telegram:666"]
  words: [forbidden]
default_command: generate
commands:
  generate: {workflow: generate.json, about: {en: "a picture from words", ru: "картинка"}}
  edit: {workflow: edit.json, max_count: 1}
  inpaint: {workflow: inpaint.json, max_count: 1}
  upscale: {workflow: upscale.json, upscales: true}
  poster: {workflow: poster.json, inputs: {seed: Colour.color}, max_seed: 16777215, max_count: 10}
  work: {workflow: work.json, inputs: {seed: Work.nonce}}
  slow: {workflow: slow.json, inputs: {seed: Work.nonce}}
  endless: {workflow: endless.json, inputs: {seed: Work.nonce}}
  broken: {workflow: broken.json, inputs: {seed: Work.nonce}}
  missing: {workflow: missing.json, inputs: {seed: Work.nonce, size: "-", count: "-"}}
`

// rig is a world with one hub, two servers, a bridge, and the services that it speaks to.
type rig struct {
	t        *testing.T
	ctx      context.Context
	w        *system.World
	Fake     *fakebot.Fake
	Discord  *fakediscord.Fake
	Bridge   *bot
	telegram *http.Server
	log      *journal
}

// newRig sets everything up, in a bubble. change may alter the options.
func newRig(t *testing.T, change ...func(*options)) *rig {
	t.Helper()
	o := options{Config: botYAML, Fake: fakebot.Options{Scale: 10, Enforce: true}}
	for _, c := range change {
		c(&o)
	}
	r := &rig{t: t, ctx: t.Context(), log: &journal{}, Fake: fakebot.New(o.Fake)}
	r.Discord = must.Get(fakediscord.New(o.Discord))(t)
	r.w = system.New(t, system.Config{Hubs: 1, Comfys: 2, TenantSecret: hubKey, Log: r.log, Comfy: sim.Config{Models: models(), PreviewMethod: "latent2rgb"}})
	r.StartTelegram()
	services := []*http.Server{host(t, r.w, "discord", r.Discord)}
	for name, service := range o.Services {
		services = append(services, host(t, r.w, name, service))
	}
	r.Bridge = r.bot("bridge", writeConfig(t, o.Config))
	t.Cleanup(func() {
		r.Fake.Close()
		r.Discord.Close()
		_ = r.telegram.Close()
		for _, s := range services {
			_ = s.Close()
		}
		r.w.Close()
	})
	return r
}

// bot starts a process of the bridge, which ends with the test.
func (r *rig) bot(name, file string) *bot {
	b := &bot{w: r.w, name: name, config: file, log: slog.New(slog.NewTextHandler(r.log, nil)).With("process", name)}
	b.Start(r.t)
	r.t.Cleanup(b.Kill)
	return b
}

// StartTelegram makes the fake reachable, StopTelegram ends that.
func (r *rig) StartTelegram() { r.telegram = host(r.t, r.w, "telegram", r.Fake) }

// StopTelegram cuts all connections to the fake and refuses new ones.
func (r *rig) StopTelegram() { _ = r.telegram.Close() }

// wait waits until the messages that a person sees meet a condition.
func (r *rig) wait(p *fakebot.Person, what string, until func([]fakebot.Message) bool) []fakebot.Message {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	list, err := p.Wait(ctx, until)
	require.NoError(r.t, err, "%s; the chat holds: %s", what, fakebot.Texts(list))
	return list
}

// waitFor waits for one message of the bot that fits, and returns it.
func (r *rig) waitFor(p *fakebot.Person, what string, fits func(fakebot.Message) bool) fakebot.Message {
	r.t.Helper()
	ofBot := func(m fakebot.Message) bool { return m.FromBot && fits(m) }
	list := r.wait(p, what, func(list []fakebot.Message) bool {
		_, ok := fakebot.Find(list, ofBot)
		return ok
	})
	m, _ := fakebot.Find(list, ofBot)
	return m
}

// askUntil repeats a question until the answer contains want. The bot may report
// an action before its cost is settled.
func (r *rig) askUntil(p *fakebot.Person, question, want string) {
	r.t.Helper()
	r.until(question+" is answered by "+want, func() bool {
		asked, _ := p.Say(question)
		said := r.waitFor(p, "an answer to "+question, fakebot.Answering(asked, func(fakebot.Message) bool { return true }))
		return strings.Contains(said.Text, want)
	})
}

// until checks a condition once a second until it holds. It does not check more
// often, because the bot ignores people who write too much. Unlike
// require.Eventually, it runs the condition on the test's own goroutine, where it
// may end the test.
func (r *rig) until(what string, holds func() bool) {
	r.t.Helper()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !holds(); <-tick.C {
		require.True(r.t, time.Now().Before(deadline), "still not after %v: %s", patience, what)
	}
}

// pictures waits until n pictures answer a message.
func (r *rig) pictures(p *fakebot.Person, message, n int) []fakebot.Message {
	r.t.Helper()
	list := r.wait(p, fmt.Sprintf("%d pictures", n), func(list []fakebot.Message) bool {
		return len(fakebot.Filter(list, fakebot.Answering(message, fakebot.IsPicture))) >= n
	})
	time.Sleep(time.Second) // a request ends after its pictures are there, and nobody presses a button before
	return fakebot.Filter(list, fakebot.Answering(message, fakebot.IsPicture))
}

// button returns the data of the button whose label contains a text.
func button(t *testing.T, m fakebot.Message, label string) string {
	t.Helper()
	for _, b := range m.Buttons {
		if strings.Contains(b.Label, label) {
			return b.Data
		}
	}
	require.Failf(t, "no such button", "%s under %+v", label, m)
	return ""
}

// answered waits for the answer to a press and returns it.
func (r *rig) answered(press string) string {
	r.t.Helper()
	text := ""
	require.Eventually(r.t, func() bool {
		for _, a := range r.Fake.Answers() {
			if a.ID == press {
				text = a.Text
				return true
			}
		}
		return false
	}, patience, 20*time.Millisecond)
	return text
}

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
	c := must.Get(config.Read(b.config))(t)
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
	running := must.Get(bridge.New(ctx, c, b.log, b.w.Net.Dialer(b.name)))(t)
	l := must.Get(b.w.Net.Listen(b.name + ":80"))(t)
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
	l := must.Get(w.Net.Listen(name + ":80"))(t)
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
		files := must.Get(filepath.Glob(filepath.Join(from, "*.json")))(t)
		for _, file := range files {
			data := must.Get(os.ReadFile(file))(t)
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
