package dispatch

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
	settings   func() Settings
	instances  *Instances
	discovery  *Discovery
	superseded *superseded
	panels     *Panels
	logs       *Logs
	signal     *signal
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
			l.signal.freed() // no new jobs are waiting
		case <-ctx.Done():
			return
		}
	}
}

// reconcile opens and closes the connections to these instances until they match the fleet.
func (l *linker) reconcile(ctx context.Context, names []string) {
	closing := map[string]*connection{}
	for _, name := range names {
		i, known := l.fleet.Instance(name)
		conn := l.instances.get(name)
		if conn != nil && known && i.URL == conn.url && i.Key == conn.key {
			continue
		}
		next := l.open(i, known)
		if l.instances.put(name, next); conn != nil {
			closing[name] = conn
		}
		if next != nil {
			next.start(ctx)
		}
	}
	for name, conn := range closing {
		l.retire(conn, l.instances.get(name))
	}
}

// errDropped says that the fleet no longer has an instance: it was removed from the configuration,
// or its agent has left for good. The instance may well be alive.
var errDropped = errors.New("the fleet does not have it any more")

// retire closes a connection. Its run moves to the instance's next connection, if there is one: a
// restarted agent serves the same instances on another port, and they have gone on working
// meanwhile.
func (l *linker) retire(conn, next *connection) {
	l.panels.dropOf(conn)
	for _, r := range conn.runs() {
		if r == nil {
			continue
		}
		if next != nil && (next.attach(r) || next.attachAhead(r)) {
			next.show(r)
			r.tell(linkEvent{kind: linkMoved, link: next})
			if !r.followed() { // it has ended and will not read this
				next.detach(r)
			}
		} else {
			r.tell(linkEvent{kind: linkDown, err: errDropped})
		}
	}
	l.work.Go(conn.log, "closing a connection", conn.close)
}

// reach asks an instance what it is and what it is running, each time the socket opens. Its runs
// are followed from then on: a restarting hub must not lose one because the instance takes minutes
// to say what it can run.
func (l *linker) reach(ctx context.Context, conn *connection) error {
	stats, err := conn.client.SystemStats(ctx)
	if err != nil {
		return err
	}
	if _, err := conn.client.Queue(ctx); err != nil {
		return err
	}
	conn.setReached(stats.Version)
	l.instances.publish(conn, conn.client) // outputs are fetched through it
	conn.deliver(linkEvent{kind: linkUp})
	return nil
}

// open makes the connection to an instance; nil if there can be none.
func (l *linker) open(i fleet.Instance, known bool) *connection {
	if !known || i.URL == "" {
		return nil
	}
	client, err := l.connect(i)
	if err != nil {
		l.log.Error("instance cannot be used", "instance", i.Name, "error", err)
		return nil
	}
	conn := newConnection(i, l.fleet, &l.instances.sets, l.log)
	conn.client, conn.wake = client, l.signal.freed
	conn.maySecrets = func() bool { return l.settings().SecretsTo.Has(i) }
	conn.cleanup = newHistoryCleanup(client.DeleteHistory, conn.log)
	conn.former.ctx, conn.former.work, conn.former.log = l.ctx, l.work, conn.log
	conn.former.open = func(sid string) *eventSocket { return l.socket(conn, func() string { return sid }) }
	conn.socket = l.socket(conn, conn.nextClientID)
	conn.socket.up = func(ctx context.Context) error {
		return conn.logged(ctx, "the instance does not answer", l.reach(ctx, conn))
	}
	conn.socket.then = func(ctx context.Context) error {
		return conn.logged(ctx, "cannot read what the instance can run", l.admit(ctx, conn))
	}
	conn.socket.down = func(err error) { l.lost(conn, err) }
	conn.socket.frame = func(f comfyui.Frame) { l.heard(conn, f) }
	return conn
}

// socket makes a socket of a link.
func (l *linker) socket(conn *connection, sid func() string) *eventSocket {
	return &eventSocket{
		client: conn.client, sid: sid, log: conn.log,
		alive: conn.alive, late: conn.late, patience: func() time.Duration { return l.settings().ContactTimeout },
	}
}

// admit reads what an instance can run, and lets it take jobs.
func (l *linker) admit(ctx context.Context, conn *connection) error {
	if i, ok := l.fleet.Instance(conn.name); !ok || i.State != fleet.Sick {
		// The prompt on which an unhealthy instance hangs stays: when it ends, the instance has
		// recovered.
		if err := l.superseded.stop(ctx, conn); err != nil {
			return err
		}
	}
	if err := l.discovery.learn(ctx, conn); err != nil {
		return err
	}
	l.logs.resume(ctx, conn)
	conn.setOpen()
	l.instances.publish(conn, conn.client) // again, for those who follow the primary
	l.signal.Wake()
	return nil
}

// lost notes that the socket of a connection is closed, or could not be opened.
func (l *linker) lost(conn *connection, err error) {
	l.panels.dropOf(conn)
	if conn.setDown() {
		conn.log.Warn("instance connection lost", "error", err)
	}
	conn.deliver(linkEvent{kind: linkDown, err: err})
	l.instances.publish(conn, nil)
	l.signal.Wake()
}

// heard takes a message of an instance.
func (l *linker) heard(conn *connection, f comfyui.Frame) {
	conn.touch()
	if l.logs.take(conn.name, f) || conn.takeFlags(f) {
		return // it belongs to no run
	}
	conn.overheard.note(f)
	if conn.running() == nil {
		conn.background.note(f, func() bool {
			i, known := l.fleet.Instance(conn.name)
			return known && i.Report.Queue == 0
		})
	}
	conn.deliver(linkEvent{kind: linkHeard, frame: f})
}
