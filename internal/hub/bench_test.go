package hub_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/api/mount"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/hub"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/system/network/loopback"
)

// bench is a hub with simulated instances.
type bench struct {
	t         testing.TB
	id        config.Identity
	settings  config.Settings
	hub       *hub.Hub
	rooms     mount.API
	web       *httptest.Server
	instances []*instance
	// tenant and cors apply to every visitor.
	tenant, cors string
	live         bool
	one          bool
	// trusted means that visitors may speak for every tenant.
	trusted bool
	// proxied means that a proxy hides the callers' addresses.
	proxied bool
	// keys is the policy of API keys; with one, Basic authentication is no login.
	keys api.KeyPolicy
	// log also gets what the hub logs. It may be nil.
	log io.Writer
}

// instance is a simulated ComfyUI with an address of its own. A dead one refuses connections.
type instance struct {
	*sim.Server
	t    testing.TB
	addr string
	end  context.CancelFunc
	done chan struct{}
}

// someClasses are those that tests use: a hub takes long to learn all 600.
var someClasses = strings.Fields(`CheckpointLoaderSimple EmptyImage EmptyLatentImage ImageScale KSampler LoadImage LoadImageMask LoraLoader
	LoraLoaderModelOnly PreviewAny PreviewImage SaveImage SaveImageWebsocket SlowNode SolidMask VAEDecode ValidateNode`)

// newInstance starts a ComfyUI. It has all classes if its OnlyClasses are empty, and not nil.
func newInstance(t testing.TB, c sim.Config) *instance {
	t.Helper()
	if c.TimeScale == 0 {
		c.TimeScale = 0.02
	}
	if _, measured := t.(*testing.B); !measured && c.OnlyClasses == nil {
		c.OnlyClasses = someClasses
	}
	server := must(sim.New(c))(t)
	i := &instance{Server: server, t: t}
	i.start()
	t.Cleanup(func() { i.die(); server.Close() })
	return i
}

func (i *instance) start() {
	i.t.Helper()
	ln := i.listen()
	i.addr = ln.Addr().String()
	ctx, end := context.WithCancel(context.Background())
	i.end, i.done = end, make(chan struct{})
	go func() {
		defer close(i.done)
		_ = i.Serve(ctx, ln)
	}()
}

// listen opens the instance's address. A benchmark has the price of real sockets in it.
func (i *instance) listen() net.Listener {
	_, measured := i.t.(*testing.B)
	switch {
	case !measured && i.addr == "":
		return loopback.Listen()
	case !measured:
		return loopback.ListenAt(i.addr)
	}
	return must(net.Listen("tcp", cmp.Or(i.addr, "127.0.0.1:0")))(i.t)
}

// die acts like kill -9: sockets are cut and the port refuses connections.
func (i *instance) die() {
	i.end()
	<-i.done
	i.Kill()
}

// revive starts the process again at the same address.
func (i *instance) revive() {
	i.Restart()
	i.start()
}

func (i *instance) url() string { return "http://" + i.addr }

// newBench starts a hub with count instances.
func newBench(t testing.TB, count int, change ...func(*bench)) *bench {
	t.Helper()
	b := &bench{t: t, id: config.Identity{Redis: "embedded", Data: t.TempDir(), GossipBind: config.NoGossip, Network: &config.Network{Dial: loopback.Dial}}}
	for range count {
		b.instances = append(b.instances, newInstance(t, sim.Config{}))
	}
	for _, c := range change {
		c(b)
	}
	for _, i := range b.instances {
		b.settings.Instances = append(b.settings.Instances, i.url())
	}
	level := slog.LevelInfo
	if testing.Verbose() {
		level = slog.LevelDebug
	}
	if _, ok := t.(*testing.B); ok {
		level = slog.LevelError // its output is the result
	}
	b.settings.Logger = slog.New(slog.NewTextHandler(b.logTo(logOf(t)), &slog.HandlerOptions{Level: level}))
	serve := loopback.Serve
	if _, measured := t.(*testing.B); measured {
		serve = httptest.NewServer
	}
	b.web = serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := api.Visitor{IP: "127.0.0.1", Tenant: b.tenant, CORS: b.cors, Live: b.live, QueueOne: b.one, Proxied: b.proxied, Trusted: b.trusted}
		if user, _, ok := r.BasicAuth(); ok && b.keys == "" {
			v.Tenant = user
		}
		v.Keys, v.Identified = b.keys, v.Tenant != ""
		b.rooms.Serve(w, r, v)
	}))
	b.start()
	t.Cleanup(func() {
		b.stop()
		b.web.CloseClientConnections()
		b.web.Close()
	})
	b.connected(len(b.settings.Instances))
	return b
}

func (b *bench) logTo(w io.Writer) io.Writer {
	if b.log == nil {
		return w
	}
	return io.MultiWriter(w, b.log)
}

func (b *bench) start() {
	b.t.Helper()
	b.hub = hub.New(b.id)
	b.rooms = mount.New(b.hub)
	require.NoError(b.t, b.hub.Start(context.Background(), b.settings))
}

func (b *bench) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(b.t, b.hub.Close(ctx))
}

// connected waits until the hub can use count instances: it has started, holds their connections
// and has their reports, which come by themselves. A hub of none may be one that cannot start.
func (b *bench) connected(count int) {
	b.t.Helper()
	eventually(b.t, func() bool {
		held := b.hub.Dispatch.Instances.Names()
		unknown := func(i fleet.Instance) bool {
			return i.Kind == fleet.KindComfyUI && i.State == fleet.Offline && held[i.Name]
		}
		return (count == 0 || b.hub.Started()) && len(b.hub.Dispatch.Instances.Clients()) == count && !slices.ContainsFunc(b.hub.Fleet.Instances(), unknown)
	}, time.Minute, 5*time.Millisecond)
}

// logOf returns the log of a test. A fuzz test must not be used while it fuzzes.
func logOf(t testing.TB) io.Writer {
	if _, ok := t.(*testing.F); ok {
		return io.Discard
	}
	return &testLog{t: t}
}

// testLog writes to the test's log until the test is over.
type testLog struct {
	mu sync.Mutex
	t  testing.TB
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.t.Context().Err() == nil {
		l.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

func (b *bench) get(path string) (int, []byte) {
	b.t.Helper()
	resp, err := http.Get(b.web.URL + path)
	require.NoError(b.t, err)
	return read(b.t, resp)
}

func (b *bench) post(path, body string) (int, []byte) {
	b.t.Helper()
	resp, err := http.Post(b.web.URL+path, "application/json", strings.NewReader(body))
	require.NoError(b.t, err)
	return read(b.t, resp)
}

func read(t testing.TB, resp *http.Response) (int, []byte) {
	t.Helper()
	defer resp.Body.Close()
	body := must(io.ReadAll(resp.Body))(t)
	return resp.StatusCode, body
}

// submit posts a graph that must be accepted, and returns its id.
func (b *bench) submit(graph, client string) string {
	b.t.Helper()
	answer := b.posts("/prompt", fmt.Sprintf(`{"prompt": %s, "client_id": %q}`, graph, client))
	return idOf(b.t, answer)
}

// entry is the part of a history entry that tests check.
type entry struct {
	Prompt  []json.RawMessage
	Outputs map[string]struct {
		Images []struct{ Filename, Subfolder, Type string }
	}
	Status struct {
		Text      string `json:"status_str"`
		Completed bool
		Messages  [][]json.RawMessage
	}
}

func (b *bench) history(id string) (entry, bool) {
	b.t.Helper()
	body := b.gets("/history/" + id)
	all := decoded[map[string]entry](b.t, body)
	e, ok := all[id]
	return e, ok
}

// finished waits for the history entry of a job.
func (b *bench) finished(id string) entry {
	b.t.Helper()
	var e entry
	eventually(b.t, func() bool {
		var ok bool
		e, ok = b.history(id)
		return ok
	}, time.Minute, 10*time.Millisecond, "job %s", id)
	return e
}

// client is a WebSocket client that keeps the messages it was sent.
type client struct {
	t    testing.TB
	conn *websocket.Conn
}

type message struct {
	Type string
	Data struct {
		PromptID string  `json:"prompt_id"`
		Node     *string `json:"node"`
		SID      string  `json:"sid"`
	}
	raw string
}

func (b *bench) dial(id string) *client {
	b.t.Helper()
	conn, _, err := websocket.Dial(b.t.Context(), b.web.URL+"/ws?clientId="+id, nil)
	require.NoError(b.t, err)
	conn.SetReadLimit(-1)
	b.t.Cleanup(func() { conn.CloseNow() })
	return &client{t: b.t, conn: conn}
}

// next returns the next JSON message that is not a status.
func (c *client) next() message {
	c.t.Helper()
	for {
		if h := c.any(); h.binary == nil && h.Type != "status" {
			return h.message
		}
	}
}

// until reads to the end of a prompt and returns the types of its messages.
// Messages of other prompts may not come in between.
func (c *client) until(id string) []string {
	c.t.Helper()
	var types []string
	for {
		m := c.next()
		require.Equal(c.t, id, m.Data.PromptID, "a foreign message: %s", m.raw)
		types = append(types, m.Type)
		if m.Type == "executing" && m.Data.Node == nil {
			return types
		}
	}
}

// picture is a graph that makes a picture of one colour.
func picture(color int) string {
	return fmt.Sprintf(`{"1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 32, "batch_size": 1, "color": %d}},
		"2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "ComfyUI"}}}`, color)
}

// work is a graph that keeps an instance busy for some seconds.
func work(seconds float64, nonce int, fail string) string {
	return fmt.Sprintf(`{"1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 32, "batch_size": 1, "color": %d}},
		"2": {"class_type": "SimulatedWork", "inputs": {"image": ["1", 0], "seconds": %g, "steps": 10, "fail": %q, "nonce": %d}},
		"3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "ComfyUI"}}}`, nonce, seconds, fail, nonce)
}

// endless is a graph that keeps an instance busy until it is interrupted. An
// interrupt takes effect at the next step.
func endless(nonce int) string {
	return strings.Replace(work(3600, nonce, "none"), `"steps": 10`, `"steps": 240`, 1)
}
