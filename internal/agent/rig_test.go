package agent

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"hash/crc32"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/gossip"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// hub is what an agent needs of a hub: a place in the gossip and a registry.
type hub struct {
	*gossip.Gossip
	registry *fleet.Registry

	mu      sync.Mutex
	refused []error
	applied []fleet.Report
}

func startHub(t testing.TB, bind string) *hub {
	t.Helper()
	h := &hub{registry: fleet.NewRegistry()}
	g := must.Get(gossip.Join(t.Context(), gossip.Config{
		Role: gossip.RoleHub, Name: "hub", Bind: bind,
		OnMember: func(e gossip.Event) {
			switch {
			case e.Left && e.Announced:
				h.registry.AgentStopped(e.Member.Name, e.Member.Boot, e.Member.Key)
			case e.Left:
				h.registry.AgentLeft(e.Member.Name, e.Member.Boot, e.Member.Key)
			}
		},
		OnReport: func(r fleet.Report) {
			err := h.registry.Apply(r)
			h.mu.Lock()
			defer h.mu.Unlock()
			if err != nil {
				h.refused = append(h.refused, err)
			} else {
				h.applied = append(h.applied, r)
			}
		},
	}))(t)
	h.Gossip = g
	return h
}

func (h *hub) stop(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = h.Leave(ctx) // nobody may be left to hear it
}

func (h *hub) await(t testing.TB, what, name string, ok func(fleet.Instance) bool) fleet.Instance {
	t.Helper()
	var i fleet.Instance
	require.Eventually(t, func() bool {
		var known bool
		i, known = h.registry.Instance(name)
		return known && ok(i)
	}, 30*time.Second, 5*time.Millisecond, what)
	return i
}

func is(s fleet.State) func(fleet.Instance) bool {
	return func(i fleet.Instance) bool { return i.State == s }
}

// ready is an instance that a hub would give a job.
func ready(i fleet.Instance) bool { return i.State == fleet.Idle && i.Report.ObjectInfo != "" }

// newHubs is by what agents know hubs of a storage of their own.
func newHubs(t testing.TB, key string) *gossip.Authority {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	return must.Get(gossip.NewAuthority(key, func() ([]ed25519.PrivateKey, error) { return []ed25519.PrivateKey{private}, nil }))(t)
}

// startAgent runs an agent until the returned function is called.
func startAgent(t testing.TB, c config) (stop func()) {
	t.Helper()
	if c.logger == nil {
		c.logger = discard()
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() { cancel(); require.NoError(t, <-done) })
	}
	t.Cleanup(stop)
	return stop
}

// startSim runs a simulated server.
func startSim(t testing.TB) (*sim.Server, string) {
	t.Helper()
	s := must.Get(sim.New(sim.Config{Dir: t.TempDir()}))(t)
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(ctx, listener) }() // ends with ctx
	t.Cleanup(func() { cancel(); <-done; s.Close() })
	return s, "http://" + listener.Addr().String()
}

func newClient(t testing.TB, i fleet.Instance) *comfyui.Client {
	t.Helper()
	c := must.Get(comfyui.NewClient(i.URL, comfyui.Options{ViaAgent: !i.Direct}))(t)
	t.Cleanup(c.Close)
	return c
}

// work is a prompt of a known length; the id makes it one that is not cached.
func work(id, extra string, seconds float64) []byte {
	nonce := crc32.ChecksumIEEE([]byte(id))
	return fmt.Appendf(nil, `{"prompt_id": %q, "client_id": "sid", "extra_data": %s, "prompt": {`+
		`"1": {"class_type": "EmptyImage", "inputs": {"width": 16, "height": 16, "batch_size": 1, "color": 0}}, `+
		`"2": {"class_type": "SimulatedWork", "inputs": {"image": ["1", 0], "seconds": %g, "steps": 2, "fail": "none", "nonce": %d}}, `+
		`"3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "x"}}}}`, id, extra, seconds, nonce)
}

// endless is work that goes on until somebody interrupts it, so that nobody can
// be too late to see it.
func endless(id, extra string) []byte {
	return bytes.Replace(work(id, extra, 3600), []byte(`"steps": 2`), []byte(`"steps": 10000`), 1)
}

// local is an idle server on this machine that uses a GPU.
func local(gpu string) *instance {
	return &instance{
		target: target{url: "http://127.0.0.1:8188", gpu: gpu},
		seen:   comfyui.Observation{Up: true, GPUType: "cuda", Boot: 1, Since: time.Now()},
	}
}
