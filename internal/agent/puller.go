package agent

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/retry"
	"github.com/comfyhub/comfyhub/internal/tunnel"
)

// puller keeps a tunnel to each hub. It is the listener of what the hubs open in them.
type puller struct {
	agent *agent
	stop  context.CancelFunc
	work  sync.WaitGroup
	conns chan net.Conn
	// closed means that nothing is accepted any more. What is open goes on.
	closed chan struct{}
	close  func()

	mu      sync.Mutex
	changed chan struct{} // closed when the reports change
	leaving bool
}

const (
	// A tunnel that cannot be opened is tried again after pauses between these.
	pullFirst, pullMost = time.Second, 30 * time.Second
	// pullGood is how long a tunnel must last before the pauses begin again.
	pullGood = time.Minute
)

func newPuller(a *agent) *puller {
	p := &puller{agent: a, stop: func() {}, conns: make(chan net.Conn), closed: make(chan struct{}), changed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	a.door.scheme, a.serving = fleet.TunnelScheme, a.name
	return p
}

// start opens the tunnels, and again when they end.
func (p *puller) start(ctx context.Context) {
	ctx, p.stop = context.WithCancel(ctx)
	for _, hub := range p.agent.hubs {
		p.work.Go(func() { p.keep(ctx, hub) })
	}
}

// cut ends the tunnels and all that goes on in them.
func (p *puller) cut() {
	p.stop()
	p.work.Wait()
}

// keep keeps a tunnel to a hub.
func (p *puller) keep(ctx context.Context, hub string) {
	log := p.agent.log.With("hub", hub)
	pauses := retry.New(pullFirst, pullMost)
	for {
		began := time.Now()
		err := p.serve(ctx, hub)
		if ctx.Err() != nil {
			return
		}
		log.Warn("no tunnel to the hub, will try again", "error", err)
		if time.Since(began) > pullGood {
			pauses.Reset()
		}
		if !pauses.Wait(ctx) {
			return
		}
	}
}

// userAgent is what hubs see.
func userAgent(version string) string { return "ComfyHub-Agent/" + version }

// serve opens a tunnel and hands on what the hub opens in it, until it ends.
func (p *puller) serve(ctx context.Context, hub string) error {
	session, err := tunnel.Dial(ctx, hub, p.agent.token, userAgent(p.agent.version), nil)
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }()
	defer context.AfterFunc(ctx, func() { _ = session.Close() })()
	p.agent.log.Info("tunnel to the hub is open", "hub", hub)
	for {
		conn, err := session.Accept()
		if err != nil {
			return err
		}
		select {
		case p.conns <- conn:
		case <-p.closed:
			_ = conn.Close()
		case <-ctx.Done():
			return errors.Join(ctx.Err(), conn.Close())
		}
	}
}

// Accept implements [net.Listener].
func (p *puller) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (p *puller) Close() error {
	p.close()
	return nil
}

// Addr implements [net.Listener].
func (p *puller) Addr() net.Addr { return tunnelAddr(strings.Join(p.agent.hubs, ",")) }

// tunnelAddr names the hubs of an agent's tunnels.
type tunnelAddr string

// Network implements [net.Addr].
func (tunnelAddr) Network() string { return fleet.TunnelScheme }

// String implements [net.Addr].
func (a tunnelAddr) String() string { return string(a) }

// Push tells the hubs that something has changed.
func (p *puller) Push(bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.changed)
	p.changed = make(chan struct{})
}

// Leave tells the hubs that the agent stops.
func (p *puller) Leave(context.Context) error {
	p.mu.Lock()
	p.leaving = true
	p.mu.Unlock()
	p.Push(true)
	return nil
}

// state returns what ends when something changes, and whether the agent leaves.
func (p *puller) state() (changed <-chan struct{}, leaving bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed, p.leaving
}

// serveReports tells a hub the agent's reports, until the agent leaves.
func (p *puller) serveReports(w http.ResponseWriter, r *http.Request) {
	answer := http.NewResponseController(w)
	tick := time.NewTicker(tunnel.RepeatEvery)
	defer tick.Stop()
	for {
		changed, leaving := p.state()
		var report *fleet.Report
		if !leaving {
			report = new(p.agent.report())
		}
		if tunnel.WriteReport(w, report) != nil || answer.Flush() != nil || leaving {
			return
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}
