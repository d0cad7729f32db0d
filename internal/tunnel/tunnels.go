package tunnel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/fleet"
)

const (
	// reportPause is the shortest time between two reports of a machine that are accepted: a
	// machine that sends without end costs the hub no more than that. Any backlog waits at the
	// machine.
	reportPause = 10 * time.Millisecond
	// tokenChecked is how often the token of an open tunnel is checked.
	tokenChecked = 20 * time.Second
	// checkTimeout bounds a check.
	checkTimeout = 5 * time.Second
	// pingTimeout is how long the agent of an open tunnel may take to answer when another one
	// wants its place. A machine that was rebooted must not wait for its old tunnel to break.
	pingTimeout = time.Second
)

// secondAgent is what becomes known of an agent whose token another one uses.
const secondAgent = "another agent with this machine's token is connected: each machine needs a token of its own"

var errClosed = errors.New("the hub stops")

// Tunnels are the connections to machines that only dial out. They are safe for concurrent
// use.
type Tunnels struct {
	// find returns the machine that a token belongs to.
	find  func(ctx context.Context, token string) (machine string, ok bool, err error)
	fleet *fleet.Registry
	// take takes an agent's report.
	take func(fleet.Report)
	log  func() *slog.Logger

	mu     sync.Mutex
	closed bool
	// open are the tunnels in use, by machine; entering those whose agents have not reported yet.
	open, entering map[string]*machineTunnel
	work           sync.WaitGroup
}

// machineTunnel is the tunnel of a machine.
type machineTunnel struct {
	machine, token string
	session        *Session
	// boot is the agent's, once it has reported and used is set.
	boot int64
	used bool
}

// NewTunnels returns no tunnels: machines open them. find returns the machine that a token belongs to, and
// take takes in reports.
func NewTunnels(find func(ctx context.Context, token string) (machine string, ok bool, err error), f *fleet.Registry, take func(fleet.Report), log func() *slog.Logger) *Tunnels {
	return &Tunnels{find: find, fleet: f, take: take, log: log, open: map[string]*machineTunnel{}, entering: map[string]*machineTunnel{}}
}

// cut ends a tunnel.
func (m *machineTunnel) cut() { _ = m.session.Close() }

// Machine returns the machine that a token belongs to. The error is [ErrToken] for one that is not valid, or one of
// Redis.
func (t *Tunnels) Machine(ctx context.Context, token string) (string, error) {
	name, ok, err := t.find(ctx, token)
	if err == nil && !ok {
		err = ErrToken
	}
	return name, err
}

// Serve drives the instances at the other end of a tunnel until it ends. A machine has only one
// tunnel: the one that its agent opens next ends the older one.
func (t *Tunnels) Serve(machine, token string, session *Session) {
	m := &machineTunnel{machine: machine, token: token, session: session}
	defer func() { _ = session.Close() }()
	if !t.begin(m) {
		return
	}
	defer t.work.Done()
	log := t.log().With("machine", machine)
	err := t.follow(m, log)
	if errors.Is(err, fleet.ErrNameTaken) {
		log.Error("a tunnel is refused", "error", err)
		t.fleet.Refuse(machine, secondAgent)
	} else {
		log.Info("tunnel closed", "reason", err.Error())
	}
	t.leave(m, errors.Is(err, ErrLeave))
}

// begin notes a tunnel whose agent has not said yet which process it is. It fails once the hub
// closes.
func (t *Tunnels) begin(m *machineTunnel) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	if old := t.entering[m.machine]; old != nil {
		go old.cut() // it waits for the other side
	}
	t.entering[m.machine] = m
	t.work.Add(1)
	return true
}

// enter makes a tunnel the current one of its machine. The error is [fleet.ErrNameTaken] if another
// process has one and answers: two machines with one token would disconnect each other for ever.
func (t *Tunnels) enter(m *machineTunnel) error {
	for {
		old, err := t.replace(m, nil)
		if old == nil {
			return err
		}
		if old.answers() {
			return fmt.Errorf("%w: %s", fleet.ErrNameTaken, secondAgent)
		}
		if next, err := t.replace(m, old); next == nil {
			return err
		}
	}
}

// replace makes a tunnel the current one in the place of its own process's, of one with a token
// that is no longer valid, or of a dead one. Else it returns the one that is in the way.
func (t *Tunnels) replace(m, dead *machineTunnel) (inTheWay *machineTunnel, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, errClosed
	}
	if old := t.open[m.machine]; old != nil {
		if old != dead && old.boot != m.boot && old.token == m.token {
			return old, nil
		}
		go old.cut() // it waits for the other side
	}
	t.open[m.machine] = m
	if t.entering[m.machine] == m {
		delete(t.entering, m.machine)
	}
	return nil, nil //nolint:nilnil // nothing is in the way
}

// answers reports whether the agent at the other end is there.
func (m *machineTunnel) answers() bool {
	pong := make(chan error, 1)
	go func() {
		_, err := m.session.Ping()
		pong <- err
	}()
	select {
	case err := <-pong:
		return err == nil
	case <-time.After(pingTimeout):
		return false
	}
}

// leave tells the fleet that a machine is gone, unless it already has another tunnel.
func (t *Tunnels) leave(m *machineTunnel, announced bool) {
	t.mu.Lock()
	current := t.open[m.machine] == m
	if current {
		delete(t.open, m.machine)
	}
	if t.entering[m.machine] == m {
		delete(t.entering, m.machine)
	}
	t.mu.Unlock()
	switch {
	case !current:
	case announced:
		t.fleet.AgentStopped(m.machine, m.boot, fleet.TunnelKey)
	default:
		t.fleet.AgentLeft(m.machine, m.boot, fleet.TunnelKey)
	}
}

// follow takes in what the agent reports, until the tunnel ends.
func (t *Tunnels) follow(m *machineTunnel, log *slog.Logger) error {
	silence := time.AfterFunc(Silence, func() { _ = m.session.Close() })
	defer silence.Stop()
	reports, err := m.session.Reports()
	if err != nil {
		return err
	}
	defer reports.Close()
	checked := time.Now()
	pace := time.NewTimer(0)
	defer pace.Stop()
	for {
		select {
		case <-pace.C:
		case <-m.session.CloseChan(): // what has already come is bounded: read on to its end without a pause
		}
		report, err := ReadReport(reports)
		if err != nil {
			return err
		}
		silence.Reset(Silence)
		if err := t.belongs(m, report, log); err != nil {
			return err
		}
		pace.Reset(reportPause)
		report.Sender = fleet.Sender{Key: fleet.TunnelKey, Tunnel: true}
		t.take(report)
		if time.Since(checked) > tokenChecked {
			checked = time.Now()
			if err := t.check(m); err != nil {
				return err
			}
		}
	}
}

// belongs checks that a report comes from the machine's agent, always the same process. With its
// first one the tunnel is used.
func (t *Tunnels) belongs(m *machineTunnel, report fleet.Report, log *slog.Logger) error {
	switch {
	case report.Agent != m.machine:
		return fmt.Errorf("the agent calls itself %q: its --name must be that of the token, %q", report.Agent, m.machine)
	case m.used && m.boot == report.Boot:
		return nil
	case m.used:
		return errors.New("the agent is another process than before")
	}
	m.boot, m.used = report.Boot, true
	if err := t.enter(m); err != nil {
		return err
	}
	log.Info("machine opened a tunnel")
	return nil
}

// check returns [ErrToken] once a tunnel's token is revoked. While Redis is away the
// tunnel stays.
func (t *Tunnels) check(m *machineTunnel) error {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	if _, err := t.Machine(ctx, m.token); errors.Is(err, ErrToken) {
		return err
	}
	return nil
}

// Dialer opens connections to the agent of a machine, through whichever tunnel it has at the time.
func (t *Tunnels) Dialer(machine string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		t.mu.Lock()
		m := t.open[machine]
		t.mu.Unlock()
		if m == nil {
			return nil, fmt.Errorf("tunnel: machine %s has no tunnel to this hub", machine)
		}
		return m.session.DialContext(ctx, network, address)
	}
}

// Close cuts all tunnels. Their agents reopen them, at this hub or another.
func (t *Tunnels) Close() {
	t.mu.Lock()
	t.closed = true
	for _, m := range t.open {
		go m.cut()
	}
	for _, m := range t.entering {
		go m.cut()
	}
	t.mu.Unlock()
	t.work.Wait()
}
