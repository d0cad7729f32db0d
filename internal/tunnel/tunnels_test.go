package tunnel

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/testing/must"
	"github.com/comfyhub/comfyhub/system/network/loopback"
)

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
	b := &tunnelBench{t: t, registry: fleet.NewRegistry(), client: &http.Client{Transport: &http.Transport{}}, token: "attic:secret"}
	find := func(_ context.Context, token string) (string, bool, error) { return "attic", token == b.token, nil }
	take := func(r fleet.Report) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.taken = append(b.taken, r)
		_ = b.registry.Apply(r)
	}
	b.Tunnels = NewTunnels(find, b.registry, take, func() *slog.Logger { return slog.New(slog.DiscardHandler) })
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		machine, err := b.Machine(r.Context(), Token(r))
		if err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		session, err := Accept(w, r)
		if err == nil {
			b.Serve(machine, Token(r), session)
		}
	}))
	b.url = site.URL
	t.Cleanup(func() {
		b.Close()
		site.Close()
		b.client.CloseIdleConnections()
	})
	return b
}

// agent opens a tunnel whose agent answers the question for reports.
func (b *tunnelBench) agent(reports http.HandlerFunc) *Session {
	b.t.Helper()
	s := must.Get(Dial(b.t.Context(), b.url, b.token, "test", b.client))(b.t)
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
		_ = WriteReport(w, report)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-ended:
			_ = WriteReport(w, nil)
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
	_, err := b.Dialer("attic")(t.Context(), "tcp", "attic:80")
	require.ErrorContains(t, err, "no tunnel")
	_, err = Dial(t.Context(), b.url, b.token+"x", "test", b.client)
	require.ErrorIs(t, err, ErrToken)
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
	require.NoError(t, must.Get(b.Dialer("attic")(t.Context(), "tcp", "attic:80"))(t).Close())
}

// Two machines with one token do not disconnect each other: the first stays while it answers.
func TestSecondAgentWithOneToken(t *testing.T) {
	t.Parallel()
	b := newTunnelBench(t)
	first := b.agent(say(reportOf("attic", 1, 1), nil))
	b.becomes(fleet.Idle)
	for boot := int64(2); boot < 5; boot++ {
		second := b.agent(say(reportOf("attic", boot, 1), nil))
		loopback.Eventually(t, second.IsClosed, time.Minute, 5*time.Millisecond)
	}
	require.False(t, first.IsClosed())
	require.Equal(t, fleet.Idle, b.state())
	b.mu.Lock()
	require.Len(t, b.taken, 1)
	b.mu.Unlock()
	require.NoError(t, must.Get(b.Dialer("attic")(t.Context(), "tcp", "attic:80"))(t).Close())
	require.NoError(t, first.Close())
	b.becomes(fleet.Offline)
	i, _ := b.registry.Instance("attic")
	require.Equal(t, secondAgent, i.Reason)
	b.agent(say(reportOf("attic", 5, 1), nil))
	b.becomes(fleet.Idle)
}

// A machine that was rebooted, or has another token, gets in though its old tunnel still looks open.
func TestTunnelOfARebootedMachine(t *testing.T) {
	t.Parallel()
	b := newTunnelBench(t)
	frozen := make(chan struct{})
	dial := b.client.Transport.(*http.Transport)
	dial.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return stuckConn{c, frozen}, err
	}
	b.agent(say(reportOf("attic", 1, 1), nil))
	b.becomes(fleet.Idle)
	close(frozen)
	b.client.CloseIdleConnections()
	dial.DialContext = nil
	began := time.Now()
	b.agent(say(reportOf("attic", 2, 1), nil))
	loopback.Eventually(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.taken[len(b.taken)-1].Boot == 2
	}, time.Minute, 5*time.Millisecond)
	require.Less(t, time.Since(began), Silence)

	b.token = "attic:another" // the one before is not valid any more
	b.agent(say(reportOf("attic", 3, 1), nil))
	loopback.Eventually(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.taken[len(b.taken)-1].Boot == 3
	}, time.Minute, 5*time.Millisecond)
}

// stuckConn says nothing once it is frozen, as one of a machine that has lost its power.
type stuckConn struct {
	net.Conn
	frozen <-chan struct{}
}

func (c stuckConn) Write(p []byte) (int, error) {
	select {
	case <-c.frozen:
		return len(p), nil
	default:
		return c.Conn.Write(p)
	}
}

// A tunnel whose agent has not said which process it is is no tunnel yet, and a machine has one of them.
func TestTunnelsThatSayNothing(t *testing.T) {
	t.Parallel()
	b := newTunnelBench(t)
	silent := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	one := b.agent(silent)
	for range 5 {
		next := b.agent(silent)
		loopback.Eventually(t, one.IsClosed, time.Minute, 5*time.Millisecond)
		one = next
	}
	_, err := b.Dialer("attic")(t.Context(), "tcp", "attic:80")
	require.ErrorContains(t, err, "no tunnel")
	b.Close()
	loopback.Eventually(t, one.IsClosed, time.Minute, 5*time.Millisecond)
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
		for seq := uint64(1); WriteReport(w, reportOf("attic", 1, seq)) == nil; seq++ {
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
		b.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Fatal("the hub waits for all that is on its way, at the pace of an open tunnel")
	}
}
