package instance

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/panics"
)

// linker keeps a connection to every instance that the fleet knows.
type linker struct {
	fleet      *fleet.Registry
	connect    func(fleet.Instance) (*comfyui.Client, error)
	maySecrets func(fleet.Instance) bool
	apiOnly    func(fleet.Instance) bool
	contact    func() time.Duration
	links      *Links
	discovery  *Discovery
	panels     *Panels
	logs       *Logs
	above      Sink
	ctx        context.Context
	work       *panics.Group
	log        *slog.Logger
}

// follow keeps the connections as the fleet says, until ctx ends.
func (l *linker) follow(ctx context.Context) {
	changes := l.fleet.Subscribe()
	defer changes.Close()
	for {
		select {
		case <-changes.Ready():
			l.reconcile(ctx, changes.Take())
			l.above.Freed() // no new jobs are waiting
		case <-ctx.Done():
			return
		}
	}
}

// reconcile opens and closes the connections to these instances until they match the fleet.
func (l *linker) reconcile(ctx context.Context, names []string) {
	closing := map[string]*Link{}
	for _, name := range names {
		i, known := l.fleet.Instance(name)
		conn := l.links.Get(name)
		if conn != nil && known && i.URL == conn.URL && i.Key == conn.key {
			if r := conn.Runs()[0]; r != nil && i.Report.Idle() {
				r.Tell(Event{Kind: Idle})
			}
			continue
		}
		next := l.open(i, known)
		if l.links.Put(name, next); conn != nil {
			closing[name] = conn
		}
		if next != nil {
			next.start(ctx)
		}
	}
	for name, conn := range closing {
		l.retire(conn, l.links.Get(name))
	}
}

// ErrDropped says that the fleet no longer has an instance: it was removed from the configuration,
// or its agent has left for good. The instance may well be alive.
var ErrDropped = errors.New("the fleet does not have it any more")

// retire closes a connection. Its run moves to the instance's next connection, if there is one: a
// restarted agent serves the same instances on another port, and they have gone on working
// meanwhile.
func (l *linker) retire(conn, next *Link) {
	l.panels.dropOf(conn)
	for _, r := range conn.Runs() {
		if r == nil {
			continue
		}
		if next != nil && (next.Attach(r) || next.AttachAhead(r)) {
			next.Show(r)
			r.Tell(Event{Kind: Moved, Link: next})
			if !r.Followed() { // it has ended and will not read this
				next.Detach(r)
			}
		} else {
			r.Tell(Event{Kind: Down, Err: ErrDropped})
		}
	}
	l.work.Go(conn.Log, "closing a connection", conn.close)
}

// reach asks an instance what it is and what it is running, each time the socket opens. Its runs
// are followed from then on: a restarting hub must not lose one because the instance takes minutes
// to say what it can run.
func (l *linker) reach(ctx context.Context, conn *Link) error {
	stats, err := conn.Client.SystemStats(ctx)
	if err != nil {
		return err
	}
	if _, err := conn.Client.Queue(ctx); err != nil {
		return err
	}
	conn.setReached(stats.Version)
	l.links.publish(conn, conn.Client) // outputs are fetched through it
	conn.Deliver(Event{Kind: Up})
	return nil
}

// open makes the connection to an instance; nil if there can be none.
func (l *linker) open(i fleet.Instance, known bool) *Link {
	if !known || i.URL == "" {
		return nil
	}
	client, err := l.connect(i)
	if err != nil {
		l.log.Error("instance cannot be used", "instance", i.Name, "error", err)
		return nil
	}
	conn := NewLink(i, l.fleet, &l.links.Sets, l.log)
	conn.Client, conn.wake = client, l.above.Freed
	conn.MaySecrets, conn.APIOnly = func() bool { return l.maySecrets(i) }, func() bool { return l.apiOnly(i) }
	conn.Cleanup = newHistoryCleanup(client.DeleteHistory, conn.Log)
	conn.Former = newFormerSockets(l.ctx, l.work, conn.Log, func(sid string) *eventSocket { return l.socket(conn, func() string { return sid }) })
	conn.Socket = l.socket(conn, conn.nextClientID)
	conn.Socket.up = func(ctx context.Context) error {
		return conn.logged(ctx, "the instance does not answer", l.reach(ctx, conn))
	}
	conn.Socket.then = func(ctx context.Context) error {
		return conn.logged(ctx, "cannot read what the instance can run", l.admit(ctx, conn))
	}
	conn.Socket.down = func(err error) { l.lost(conn, err) }
	conn.Hear = func(f comfyui.Frame) { l.heard(conn, f) }
	conn.Socket.frame = conn.Hear
	return conn
}

// socket makes a socket of a link.
func (l *linker) socket(conn *Link, sid func() string) *eventSocket {
	return &eventSocket{
		client: conn.Client, sid: sid, log: conn.Log,
		alive: conn.alive, late: conn.late, patience: l.contact,
	}
}

// admit reads what an instance can run, and lets it take jobs.
func (l *linker) admit(ctx context.Context, conn *Link) error {
	if i, ok := l.fleet.Instance(conn.Name); !ok || i.State != fleet.Sick {
		// The prompt on which an unhealthy instance hangs stays: when it ends, the instance has
		// recovered.
		if err := l.above.Clear(ctx, conn); err != nil {
			return err
		}
	}
	if err := l.discovery.learn(ctx, conn); err != nil {
		return err
	}
	l.logs.resume(ctx, conn)
	conn.SetOpen()
	l.links.publish(conn, conn.Client) // again, for those who follow the primary
	l.above.Wake()
	return nil
}

// lost notes that the socket of a connection is closed, or could not be opened.
func (l *linker) lost(conn *Link, err error) {
	l.panels.dropOf(conn)
	if conn.SetDown() {
		conn.Log.Warn("instance connection lost", "error", err)
	}
	conn.Deliver(Event{Kind: Down, Err: err})
	l.links.publish(conn, nil)
	l.above.Wake()
}

// heard takes a message of an instance.
func (l *linker) heard(conn *Link, f comfyui.Frame) {
	conn.touch()
	if l.logs.take(conn.Name, f) || conn.takeFlags(f) {
		return // it belongs to no run
	}
	conn.overheard.note(f)
	if conn.Running() == nil {
		conn.Background.note(f, func() bool {
			i, known := l.fleet.Instance(conn.Name)
			return known && i.Report.Queue == 0
		})
	}
	conn.Deliver(Event{Kind: Heard, Frame: f})
}
