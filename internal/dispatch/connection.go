package dispatch

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// connection is the hub's link to one instance: a client, one persistent WebSocket, and parts with
// what is known of the instance.
type connection struct {
	name   string
	url    string
	kind   string
	key    string // of its agent
	owner  string // the agent, or the instance itself if it has none
	client *comfyui.Client
	log    *slog.Logger
	stop   context.CancelFunc
	done   chan struct{}
	socket *eventSocket
	// cleanup removes finished runs from the instance's own history.
	cleanup *historyCleanup
	// overheard tells broadcasts from messages to one client; background knows what says nothing
	// about a run.
	overheard  overheard
	background background
	// refused are the jobs that this instance did not take, until its abilities are read again.
	refused refusals
	// former are the sockets of runs that were taken over.
	former formerSockets

	slot
	past
	pulse
	knowledge
	loaded
	precedence
	givenIDs

	mu sync.Mutex
	// sid is the client id of the socket, see clientID.
	sid string
}

// newConnection makes the link to an instance, with no socket. Nil for wake and maySecrets says that
// nobody waits, and that it gets no API keys.
func newConnection(i fleet.Instance, registry *fleet.Registry, sets *freeSets, log *slog.Logger) *connection {
	conn := &connection{
		name: i.Name, url: i.URL, kind: i.Kind, key: i.Key, owner: cmp.Or(i.Agent, i.Name), log: log.With("instance", i.Name), done: make(chan struct{}),
	}
	conn.slot.name, conn.slot.fleet, conn.slot.link, conn.slot.sets, conn.slot.past = i.Name, registry, conn, sets, &conn.past
	conn.pulse.name, conn.pulse.fleet, conn.wake = i.Name, registry, func() {}
	conn.knowledge.slot, conn.ask, conn.maySecrets = &conn.slot, newAsking(), func() bool { return false }
	return conn
}

// clientID returns the client id to which the instance sends messages about the runs of this link.
func (conn *connection) clientID() string {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	return conn.sid
}

// nextClientID returns the id for a new socket: a fresh one unless a run needs the last one.
// ComfyUI silences a socket when an older one with the same id closes, and that may happen any time
// after the hub has lost the older one.
func (conn *connection) nextClientID() string {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	if runs := conn.runs(); conn.sid == "" || runs[0] == nil && runs[1] == nil {
		conn.sid = "comfyhub-" + uuid.NewString()
	}
	return conn.sid
}

// caughtUp waits until everything the instance has sent so far has been read.
func (conn *connection) caughtUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	return conn.socket.caughtUp(ctx)
}

// start keeps the link open until ctx ends or close is called.
func (conn *connection) start(ctx context.Context) {
	ctx, conn.stop = context.WithCancel(ctx)
	go func() {
		defer close(conn.done)
		conn.socket.run(ctx)
	}()
}

// logged logs an error, unless ctx has ended, and returns it.
func (conn *connection) logged(ctx context.Context, what string, err error) error {
	if err != nil && ctx.Err() == nil {
		conn.log.Warn(what, "error", err)
	}
	return err
}

// close ends the link and waits for it.
func (conn *connection) close() {
	conn.stop()
	<-conn.done
	conn.cleanup.close()
	conn.client.Close()
	conn.setDown()
}

// setReached notes that the instance answers on a new socket.
func (conn *connection) setReached(version comfyui.Version) {
	conn.setVersion(version)
	conn.reach(version)
	conn.answers()
}

// setOpen notes that the instance can take jobs.
func (conn *connection) setOpen() {
	conn.touch()
	conn.refused.forget()
	conn.admit()
}

// setDown notes that the socket is lost, and reports whether that is news.
func (conn *connection) setDown() (changed bool) {
	changed = conn.shut()
	conn.unload()
	conn.dropFlags()
	return changed
}

// reopen opens the socket again. The instance gets nothing until then.
func (conn *connection) reopen() {
	conn.setDown()
	conn.socket.reopen()
}

// deliver hands an event to the runs that use this link.
func (conn *connection) deliver(e linkEvent) {
	for _, r := range conn.runs() {
		if r != nil {
			r.tell(e)
		}
	}
}

// has reports whether a queue item is one of the runs of this link.
func (conn *connection) has(item comfyui.QueueItem) bool {
	for _, r := range conn.runs() {
		if r == nil {
			continue
		}
		// The mark of another run cannot be read here, so any attempt at the job will do.
		if j := r.job(); item.ID == j.Run.Upstream || item.Mark.Job == j.Key {
			return true
		}
	}
	return false
}

// show tells the fleet that the instance is busy with a run, unless the run has been detached.
func (conn *connection) show(r holder) {
	if conn.report(r) {
		conn.lapse()
	}
}

// idle describes the link for Pick; ok is false while it can take no job, and while it shows no sign
// of life.
func (conn *connection) idle() (schedule.Idle, *catalog.Info, bool) {
	if !conn.vacant() || !conn.proven() {
		return schedule.Idle{}, nil, false
	}
	client, _ := conn.past.client()
	return schedule.Idle{Name: conn.name, LastClient: client, Loaded: conn.models()}, conn.abilities(), true
}

// next is idle for a job behind the run.
func (conn *connection) next() (schedule.Idle, *catalog.Info, bool) {
	r := conn.behind()
	if r == nil || !conn.proven() {
		return schedule.Idle{}, nil, false
	}
	return schedule.Idle{Name: conn.name, LastClient: r.job().Client, Loaded: conn.models()}, conn.abilities(), true
}

// ranFor returns how long the instance has been executing a run; false if it has not
// begun.
func (conn *connection) ranFor(r holder, now time.Time) (ran time.Duration, began bool) {
	since := conn.since(r)
	return max(now.Sub(since), 0), !since.IsZero()
}

// ranLast reports whether the last job here was this client's. If so, whatever the instance has
// loaded is that client's too.
func (conn *connection) ranLast(tenant, client string) bool {
	if r := conn.running(); r != nil {
		if j := r.job(); j.Tenant != tenant || j.Client != client {
			return false
		}
	}
	lastClient, lastTenant := conn.past.client()
	return lastTenant == tenant && lastClient == client
}

// gone reports whether an error means that the instance's process is gone, rather than unreachable.
func gone(err error) bool { return errors.Is(err, comfyui.ErrGone) }

// asked reports whether an error means that somebody asked for the restart.
func asked(err error) bool { return errors.Is(err, comfyui.ErrRestarting) }
