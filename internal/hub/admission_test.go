package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/keyring/keyringtest"
	"github.com/comfyhub/comfyhub/internal/machines"
	"github.com/comfyhub/comfyhub/internal/pins"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
	"github.com/comfyhub/comfyhub/internal/tunnel"
	"github.com/comfyhub/comfyhub/system/network/loopback"
)

// register is what hubs share, without a Redis.
type register struct {
	mu    sync.Mutex
	keys  map[string]string
	away  error
	asked int
}

func (r *register) Claim(_ context.Context, name, key string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if r.away != nil {
		return "", r.away
	}
	if r.keys[name] == "" {
		r.keys[name] = key
	}
	return r.keys[name], nil
}

func (r *register) Forget(_ context.Context, name string) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.keys[name]
	delete(r.keys, name)
	return known, r.away
}

func (r *register) setAway(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = err
}

// gate is an admission that records the outcome of reports.
type gate struct {
	*admission
	mu      sync.Mutex
	taken   []string
	refused []error
}

func newGate(o owners) *gate {
	g := &gate{}
	g.admission = newAdmission(o,
		func(r fleet.Report) { g.mu.Lock(); defer g.mu.Unlock(); g.taken = append(g.taken, r.Sender.Key) },
		func(_ fleet.Report, err error) { g.mu.Lock(); defer g.mu.Unlock(); g.refused = append(g.refused, err) })
	return g
}

// from reports as an agent and returns the outcome: the key that was accepted, or the error.
func (g *gate) from(name, key string) (taken string, refused error) {
	g.taken, g.refused = nil, nil
	g.admit(fleet.Report{Agent: name, Sender: fleet.Sender{Key: key}})
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.taken) > 0 {
		return g.taken[0], nil
	}
	return "", errors.Join(g.refused...)
}

func TestAdmission(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := &register{keys: map[string]string{}}
		one, two := newGate(shared), newGate(shared) // two hubs
		defer one.close()
		defer two.close()
		takes := func(g *gate, key string) {
			t.Helper()
			require.Equal(t, key, must.Get(g.from("box", key))(t))
		}
		refuses := func(g *gate, key string, want error) {
			t.Helper()
			_, err := g.from("box", key)
			require.ErrorIs(t, err, want)
		}
		takes(one, "k1")
		asked := shared.asked
		for range 20 {
			takes(one, "k1")
			refuses(one, "k2", errPinned)
		}
		require.Equal(t, asked, shared.asked, "what is known is not asked for again at once")
		refuses(two, "k2", errPinned)
		takes(two, "k1")

		// While Redis is away, known agents go on and unknown ones wait.
		shared.setAway(errors.New("away"))
		time.Sleep(2 * ownerFresh)
		takes(one, "k1")
		takes(one, "k1")
		refuses(one, "k2", errUnchecked)
		takes(one, "k1")
		_, err := one.from("new", "k3")
		require.ErrorIs(t, err, errUnchecked)
		shared.setAway(pins.ErrFull)
		_, err = one.from("new", "k3")
		require.ErrorIs(t, err, pins.ErrFull)
		shared.setAway(fmt.Errorf("pins: %w", keyring.ErrForged))
		_, err = one.from("new", "k3")
		require.ErrorIs(t, err, errDamaged)
		require.ErrorContains(t, err, "POST /comfyhub/forget?agent=new on")
		takes(one, "k1")
		shared.setAway(nil)
		require.Equal(t, "k3", must.Get(one.from("new", "k3"))(t))

		// A name forgotten at one hub is free at the other a moment later.
		takes(two, "k1")
		require.True(t, must.Get(one.forget(t.Context(), "box"))(t))
		takes(one, "k2")
		refuses(one, "k1", errPinned)
		time.Sleep(2 * ownerFresh)
		_, _ = two.from("box", "k1") // asks again
		refuses(two, "k1", errPinned)
		takes(two, "k2")

		// Without a gossip key everybody gets in.
		open := newGate(nil)
		defer open.close()
		for _, key := range []string{"k1", "", "k2"} {
			takes(open, key)
		}
		require.False(t, must.Get(open.forget(t.Context(), "box"))(t))
	})
}

// An agent that may join can make up any number of names.
func TestAdmissionIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := &register{keys: map[string]string{}}
		g := newGate(shared)
		defer g.close()
		for n := range maxOwners + 100 {
			g.admit(fleet.Report{Agent: fmt.Sprint("n", n), Sender: fleet.Sender{Key: "k"}})
		}
		synctest.Wait()
		require.LessOrEqual(t, len(g.names), maxOwners)
		require.LessOrEqual(t, shared.asked, maxOwners)
		must.Get(g.from("one more", "k"))(t)
		require.Contains(t, shared.keys, "one more", "there is room for another one")
	})
}

// tunnelBench is a hub's end of tunnels.
type tunnelBench struct {
	t *testing.T
	*Tunnels
	registry *fleet.Registry
	url      string
	client   *http.Client
	token    string

	mu    sync.Mutex
	taken []fleet.Report
}

func newTunnelBench(t *testing.T) *tunnelBench {
	t.Helper()
	b := &tunnelBench{t: t, registry: fleet.NewRegistry(), client: &http.Client{Transport: &http.Transport{}}}
	tokens := machines.New(redistest.Embedded(t), keyringtest.New(t))
	token := must.Get(tokens.Issue(t.Context(), "attic"))(t)
	b.token = token
	b.Tunnels = &Tunnels{machines: tokens, fleet: b.registry, open: map[string]*machineTunnel{}, log: func() *slog.Logger { return slog.New(slog.DiscardHandler) }, take: func(r fleet.Report) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.taken = append(b.taken, r)
		_ = b.registry.Apply(r)
	}}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		machine, err := b.Machine(r.Context(), tunnel.Token(r))
		if err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		session, err := tunnel.Accept(w, r)
		if err == nil {
			b.Serve(machine, tunnel.Token(r), session)
		}
	}))
	b.url = site.URL
	t.Cleanup(func() {
		b.close()
		site.Close()
		b.client.CloseIdleConnections()
	})
	return b
}

// agent opens a tunnel whose agent answers the question for reports.
func (b *tunnelBench) agent(reports http.HandlerFunc) *tunnel.Session {
	b.t.Helper()
	s := must.Get(tunnel.Dial(b.t.Context(), b.url, b.token, "test", b.client))(b.t)
	server := &http.Server{Handler: reports, ReadHeaderTimeout: time.Minute}
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(s) })
	b.t.Cleanup(func() {
		_ = s.Close()
		_ = server.Close()
		served.Wait()
	})
	return s
}

func (b *tunnelBench) state() fleet.State {
	i, _ := b.registry.Instance("attic")
	return i.State
}

func (b *tunnelBench) becomes(want fleet.State) {
	b.t.Helper()
	loopback.Eventually(b.t, func() bool { return b.state() == want }, time.Minute, 5*time.Millisecond, want)
}

// reportOf is what an agent says of its one idle instance.
func reportOf(name string, boot int64, seq uint64) *fleet.Report {
	return &fleet.Report{Agent: name, Boot: boot, Seq: seq, Instances: []fleet.InstanceReport{{Name: "attic", URL: "tunnel://attic/i/attic", Up: true}}}
}

// say answers with one report, and goes on when ended is closed.
func say(report *fleet.Report, ended <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_ = tunnel.WriteReport(w, report)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-ended:
			_ = tunnel.WriteReport(w, nil)
		case <-r.Context().Done():
		}
	}
}

func TestTunnelBringsAnInstance(t *testing.T) {
	t.Parallel()
	b := newTunnelBench(t)
	ended := make(chan struct{})
	b.agent(say(reportOf("attic", 1, 1), ended))
	b.becomes(fleet.Idle)
	b.mu.Lock()
	require.Equal(t, fleet.Sender{Key: fleet.TunnelKey, Tunnel: true}, b.taken[0].Sender)
	b.mu.Unlock()
	close(ended)
	b.becomes(fleet.Offline)
	i, _ := b.registry.Instance("attic")
	require.True(t, i.Left, "the agent has said so itself")

	// One that breaks says nothing.
	s := b.agent(say(reportOf("attic", 2, 1), nil))
	b.becomes(fleet.Idle)
	require.NoError(t, s.Close())
	b.becomes(fleet.Offline)
	i, _ = b.registry.Instance("attic")
	require.False(t, i.Left)
	_, err := b.dialer("attic")(t.Context(), "tcp", "attic:80")
	require.ErrorContains(t, err, "no tunnel")
	_, err = tunnel.Dial(t.Context(), b.url, b.token+"x", "test", b.client)
	require.ErrorIs(t, err, tunnel.ErrToken)
}

// A new tunnel replaces the old one, and the end of the old one means nothing.
func TestSecondTunnelOfAMachine(t *testing.T) {
	t.Parallel()
	b := newTunnelBench(t)
	first := b.agent(say(reportOf("attic", 1, 1), nil))
	b.becomes(fleet.Idle)
	b.agent(say(reportOf("attic", 1, 2), nil))
	loopback.Eventually(t, first.IsClosed, time.Minute, 5*time.Millisecond)
	loopback.Eventually(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.taken) == 2
	}, time.Minute, 5*time.Millisecond)
	b.becomes(fleet.Idle)
	require.NoError(t, must.Get(b.dialer("attic")(t.Context(), "tcp", "attic:80"))(t).Close())
}

// A token admits only the machine that it names, under no other name.
func TestTunnelOfAnotherName(t *testing.T) {
	t.Parallel()
	b := newTunnelBench(t)
	s := b.agent(say(reportOf("cellar", 1, 1), nil))
	loopback.Eventually(t, s.IsClosed, time.Minute, 5*time.Millisecond)
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(t, b.taken)
}

// Reports without end cost the hub only so many a second.
func TestReportsWithoutEnd(t *testing.T) {
	t.Parallel()
	b := newTunnelBench(t)
	began := time.Now()
	b.agent(func(w http.ResponseWriter, r *http.Request) {
		for seq := uint64(1); tunnel.WriteReport(w, reportOf("attic", 1, seq)) == nil; seq++ {
			continue
		}
	})
	loopback.Eventually(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.taken) >= 50
	}, 20*time.Second, time.Millisecond)
	require.Greater(t, time.Since(began), 49*reportPause)
	closed := make(chan struct{})
	go func() {
		b.close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Fatal("the hub waits for all that is on its way, at the pace of an open tunnel")
	}
}
