package hub_test

import (
	"bytes"
	"context"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/gossip"
	"github.com/comfyhub/comfyhub/internal/logs/logtest"
	"github.com/comfyhub/comfyhub/internal/operator"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/testing/freeport"
)

const fleetKey = "the key of the whole fleet"

// box is a GPU machine: a simulated ComfyUI together with an agent that, unlike a
// real one, reports whatever a test wants.
type box struct {
	*gossip.Gossip
	id     gossip.Identity
	server *instance
	// advertise is where it says that it is, if that is not true.
	advertise string
	// address is the URL where it serves, without a path.
	address string
	seq     atomic.Uint64

	mu     sync.Mutex
	says   []fleet.InstanceReport
	posted []string // bodies of POST /prompt
}

// newBox serves a simulated ComfyUI, over plain HTTP or as an agent does.
func newBox(t *testing.T, plain bool) *box {
	t.Helper()
	b := &box{id: gossip.NewIdentity(), server: newInstance(t, sim.Config{})}
	target := must(url.Parse(b.server.url()))(t)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, ok := strings.CutPrefix(r.URL.Path, "/i/"); ok {
			_, rest, _ := strings.Cut(name, "/")
			r.URL.Path, r.URL.RawPath = "/"+rest, ""
		}
		if r.Method == http.MethodPost && r.URL.Path == "/prompt" {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			b.mu.Lock()
			b.posted = append(b.posted, string(body))
			b.mu.Unlock()
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		proxy.ServeHTTP(w, r)
	}))
	web.Config.ErrorLog = log.New(io.Discard, "", 0)
	if plain {
		web.Start()
	} else {
		web.TLS = must(gossip.ServeTLS(fleetKey, b.id, gossip.NewHubPin(slog.New(slog.DiscardHandler))))(t)
		web.StartTLS()
	}
	t.Cleanup(func() { web.CloseClientConnections(); web.Close() })
	b.address = web.URL
	return b
}

// got lists the prompts that were posted to the box.
func (b *box) got() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.posted...)
}

// say changes what the box reports.
func (b *box) say(list ...fleet.InstanceReport) {
	b.mu.Lock()
	b.says = list
	b.mu.Unlock()
	b.Push(true)
}

// join enters the group under a name. leave ends that.
func (b *box) join(t *testing.T, h *bench, name string, boot int64, log io.Writer) (leave func()) {
	t.Helper()
	c := gossip.Config{
		Role: gossip.RoleAgent, Name: name, Boot: boot, Key: h.id.GossipKey, Identity: b.id,
		Bind: "127.0.0.1:0", Advertise: b.advertise, Join: []string{h.id.GossipBind},
		Report: func() fleet.Report {
			b.mu.Lock()
			defer b.mu.Unlock()
			return fleet.Report{Agent: name, Boot: boot, Seq: b.seq.Add(1), Instances: b.says}
		},
	}
	if log != nil {
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
	}
	g := must(gossip.Join(t.Context(), c))(t)
	b.Gossip = g
	leave = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = g.Leave(ctx) // nobody may be left to hear it
	})
	t.Cleanup(leave)
	return leave
}

func up(name, address string) fleet.InstanceReport {
	return fleet.InstanceReport{Name: name, URL: address, Kind: fleet.KindComfyUI, Up: true, Boot: 1}
}

func (b *bench) reportsRefused(kind string) float64 {
	b.t.Helper()
	return b.metric(`comfyhub_reports_refused_total{reason="` + kind + `"}`)
}

// entryOf returns what /hub/instances says about an instance.
func (b *bench) entryOf(name string) (state, reason string) {
	b.t.Helper()
	_, body := b.get("/hub/instances")
	list := decoded[[]struct{ Name, State, Reason string }](b.t, body)
	for _, i := range list {
		if i.Name == name {
			return i.State, i.Reason
		}
	}
	return "", ""
}

func keyed(b *bench) { b.id.GossipKey, b.id.GossipBind = fleetKey, must(freeport.Address())(b.t) }

// A stolen GPU machine has the gossip key. It claims to be another machine that has just restarted
// at a new address. The next job, with its API key, must not go there.
func TestStolenMachineTakesNobodysName(t *testing.T) {
	t.Parallel()
	h := newBench(t, 0, keyed)
	honest := newBox(t, false)
	boot := time.Now().UnixMilli()
	honest.join(t, h, "box", boot, nil)
	honest.say(up("box", honest.address+"/i/box"))
	h.connected(1)

	var told logtest.Log
	plain, sealed := newBox(t, true), newBox(t, false)
	plain.join(t, h, "box", boot+1, &told)
	bait := up("bait", honest.address+"/i/bait")
	bait.Up = false
	plain.say(bait, up("box", plain.address))
	eventually(t, func() bool { return h.reportsRefused("pinned") > 0 }, time.Minute, time.Millisecond)
	sealed.join(t, h, "box", boot+2, nil)
	before := h.reportsRefused("pinned")
	sealed.say(bait, up("box", sealed.address+"/i/box"))
	eventually(t, func() bool { return h.reportsRefused("pinned") > before }, time.Minute, time.Millisecond)

	h.finished(h.submit(picture(1), "ann"))
	require.Len(t, honest.got(), 1)
	require.Empty(t, plain.got())
	require.Empty(t, sealed.got())
	eventually(t, func() bool { return strings.Contains(told.String(), "a hub refuses this agent") }, time.Minute, time.Millisecond, "its operator finds out too")
}

// A name stays with its agent while the agent is away and when the hub restarts,
// until the operator frees it.
func TestNamesStayPinned(t *testing.T) {
	t.Parallel()
	h := newBench(t, 0, keyed)
	boot := time.Now().UnixMilli()
	honest := newBox(t, false)
	leave := honest.join(t, h, "box", boot, nil)
	honest.say(up("box", honest.address+"/i/box"))
	h.connected(1)
	require.ErrorIs(t, h.hub.Operator.ForgetAgent(t.Context(), "box"), operator.ErrAgentAlive)
	require.ErrorIs(t, h.hub.Operator.ForgetAgent(t.Context(), "other"), operator.ErrAgentUnknown)
	leave()
	eventually(t, func() bool { state, _ := h.entryOf("box"); return state == "offline" }, time.Minute, time.Millisecond)

	other := newBox(t, false)
	leave = other.join(t, h, "box", boot+1, nil)
	other.say(up("box", other.address+"/i/box"))
	shown := func() bool {
		state, reason := h.entryOf("box")
		return state == "offline" && strings.Contains(reason, "another key") && strings.Contains(reason, "POST /comfyhub/forget?agent=box")
	}
	eventually(t, shown, time.Minute, time.Millisecond)
	leave()

	h.stop()
	h.start()
	leave = other.join(t, h, "box", boot+2, nil)
	defer leave()
	eventually(t, shown, time.Minute, time.Millisecond, "of the new hub's too")
	require.Empty(t, h.hub.Dispatch.Instances.Clients())

	require.NoError(t, h.hub.Operator.ForgetAgent(t.Context(), "box"))
	h.connected(1)
	h.finished(h.submit(picture(1), "ann"))
	require.Len(t, other.got(), 1)
}

// The address that an agent reports counts only as far as the agent can prove it.
func TestReportsCannotSendTheHubElsewhere(t *testing.T) {
	t.Parallel()
	var log logtest.Log
	h := newBench(t, 0, keyed, func(b *bench) { b.log = &log })
	inside := newBox(t, true) // for example an address that only the hub can reach
	agent := newBox(t, false)
	agent.join(t, h, "box", 1, nil)
	direct := func(name, address string) fleet.InstanceReport {
		i := up(name, address)
		i.Direct = true
		return i
	}
	agent.say(up("own", agent.address+"/i/own"), up("plain", inside.address+"/i/plain"), direct("direct", inside.address),
		up("path", agent.address+"/restart/own"))
	h.connected(1)
	eventually(t, func() bool {
		state, reason := h.entryOf("direct")
		return state == "offline" && strings.Contains(reason, "allow_direct") && !strings.Contains(reason, "127.0.0.1")
	}, time.Minute, time.Millisecond)
	eventually(t, func() bool { return strings.Contains(log.String(), "allow_direct 127.0.0.1") }, time.Minute, time.Millisecond, "the operator is told which address")
	for _, name := range []string{"plain", "path"} {
		state, reason := h.entryOf(name)
		require.Equal(t, "offline", state, name)
		require.NotEmpty(t, reason, name)
	}

	// A TLS server that lacks the agent's own key gets no prompts.
	thief := newBox(t, false)
	agent.say(up("own", agent.address+"/i/own"), up("other", thief.address+"/i/other"))
	eventually(t, func() bool { state, _ := h.entryOf("other"); return state == "idle" }, time.Minute, time.Millisecond)
	for n := range 3 {
		h.finished(h.submit(picture(n), "ann"))
	}
	require.Len(t, agent.got(), 3)
	require.Empty(t, thief.got())
	require.Empty(t, inside.got())

	h.settings.AllowDirect = []string{"127.0.0.1"}
	require.NoError(t, h.hub.Start(t.Context(), h.settings))
	agent.say(direct("direct", inside.address))
	eventually(t, func() bool {
		return len(h.hub.Dispatch.Instances.Clients()) == 1 && h.hub.Clients.ByName("direct") != nil
	}, time.Minute, time.Millisecond)
	h.finished(h.submit(picture(9), "ann"))
	require.Len(t, inside.got(), 1)

	h.settings.AllowDirect = []string{"http://10.0.0.1"}
	require.ErrorContains(t, h.hub.Start(t.Context(), h.settings), "allow_direct")
}

// Addresses do not change while an agent runs.
func TestAddressesStayWhileAnAgentRuns(t *testing.T) {
	t.Parallel()
	h := newBench(t, 0, keyed)
	agent, elsewhere := newBox(t, false), newBox(t, false)
	agent.join(t, h, "box", 1, nil)
	agent.say(up("box", agent.address+"/i/box"))
	h.connected(1)
	agent.say(up("box", elsewhere.address+"/i/box"))
	eventually(t, func() bool { return h.reportsRefused("moved") > 0 }, time.Minute, time.Millisecond)
	i, _ := h.hub.Fleet.Instance("box")
	require.Equal(t, agent.address+"/i/box", i.URL)
}

// A machine says that it is where somebody else is: at an address of the hub's own, from which
// nothing has come. The hub does not call there, until the operator says that agents are there.
func TestNobodyIsCalledWhereNothingComesFrom(t *testing.T) {
	t.Parallel()
	inside, err := net.Listen("tcp", "127.0.0.77:0")
	if err != nil {
		t.Skip("only Linux has all of 127.0.0.0/8:", err)
	}
	var called atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := inside.Accept()
			if err != nil {
				return
			}
			called.Add(1)
			conn.Close()
		}
	}()
	defer func() { inside.Close(); <-done }()
	h := newBench(t, 0, keyed)
	thief, honest := newBox(t, false), newBox(t, false)
	thief.advertise = "127.0.0.77:0"
	thief.join(t, h, "thief", 1, nil)
	thief.say(up("thief", "https://"+inside.Addr().String()+"/i/thief"))
	honest.join(t, h, "honest", 1, nil)
	honest.say(up("honest", honest.address+"/i/honest"))
	h.connected(1)
	eventually(t, func() bool {
		state, reason := h.entryOf("thief")
		return state == "offline" && strings.Contains(reason, "agents_from") && !strings.Contains(reason, "127.0.0.77")
	}, time.Minute, 10*time.Millisecond)
	h.finished(h.submit(picture(1), "ann"))
	require.Len(t, honest.got(), 1)
	require.Zero(t, called.Load())

	h.settings.AgentsFrom = []string{"127.0.0.64/26"}
	require.NoError(t, h.hub.Start(t.Context(), h.settings))
	eventually(t, func() bool { return called.Load() > 0 }, time.Minute, 10*time.Millisecond)
	h.settings.AgentsFrom = []string{"gpu.internal"}
	require.ErrorContains(t, h.hub.Start(t.Context(), h.settings), "agents_from")
}

// An agent that refuses the hub looks well in its own reports. The checkup tells.
func TestCheckTellsOfAgentsThatRefuse(t *testing.T) {
	t.Parallel()
	h := newBench(t, 0, keyed)
	box := newBox(t, false)
	must(h.hub.Authority.Key())(t)
	web := httptest.NewUnstartedServer(http.NotFoundHandler())
	web.Config.ErrorLog = log.New(io.Discard, "", 0)
	pin, err := gossip.OpenHubPin("", gossip.NewIdentity().Key(), slog.New(slog.DiscardHandler)) // of another fleet
	require.NoError(t, err)
	web.TLS, err = gossip.ServeTLS(fleetKey, box.id, pin)
	require.NoError(t, err)
	web.StartTLS()
	defer web.Close()
	box.join(t, h, "box", 1, nil)
	box.say(up("box", web.URL+"/i/box"))
	eventually(t, func() bool {
		return slices.ContainsFunc(h.hub.Checkup.Findings(t.Context()), func(f config.Finding) bool {
			return f.Level == config.LevelWarning && f.Says == "box is up, but this hub has no connection to it"
		})
	}, time.Minute, 10*time.Millisecond)
}
