// Package instance is the link to one server, and what is known of it: the connection, its event
// socket, the sockets of single clients, what it can do, and when it last showed a sign of life. Of
// runs it knows no more than [Holder], and tells whoever gives the instances their work what [Sink]
// says.
package instance

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

// Link is the hub's link to one instance: a client, one persistent WebSocket, and parts with
// what is known of the instance.
type Link struct {
	Name   string
	URL    string
	Kind   string
	key    string // of its agent
	owner  string // the agent, or the instance itself if it has none
	Client *comfyui.Client
	Log    *slog.Logger
	stop   context.CancelFunc
	done   chan struct{}
	Socket *eventSocket
	// Hear takes a message of the instance.
	Hear func(comfyui.Frame)
	// Cleanup removes finished runs from the instance's own history.
	Cleanup *historyCleanup
	// overheard tells broadcasts from messages to one client; background knows what says nothing
	// about a run.
	overheard  overheard
	Background background
	// Refused are the jobs that this instance did not take, until its abilities are read again.
	Refused Refusals
	// Former are the sockets of runs that were taken over.
	Former *formerSockets

	slot
	past
	pulse
	knowledge
	loaded
	Precedence
	givenIDs

	mu sync.Mutex
	// sid is the client id of the socket, see ClientID.
	sid string
}

// NewLink makes the link to an instance that has no socket and gets no API keys.
func NewLink(i fleet.Instance, registry *fleet.Registry, sets *FreeSets, log *slog.Logger) *Link {
	conn := &Link{
		Name: i.Name, URL: i.URL, Kind: i.Kind, key: i.Key, owner: cmp.Or(i.Agent, i.Name), Log: log.With("instance", i.Name), done: make(chan struct{}),
	}
	conn.slot.name, conn.slot.fleet, conn.slot.link, conn.slot.sets, conn.slot.past = i.Name, registry, conn, sets, &conn.past
	conn.pulse.name, conn.pulse.fleet, conn.wake = i.Name, registry, func() {}
	conn.knowledge.slot, conn.ask, conn.MaySecrets, conn.APIOnly = &conn.slot, newAsking(), never, never
	return conn
}

func never() bool { return false }

// ClientID returns the client id to which the instance sends messages about the runs of this link.
func (conn *Link) ClientID() string {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	return conn.sid
}

// nextClientID returns the id for a new socket: a fresh one unless a run needs the last one.
// ComfyUI silences a socket when an older one with the same id closes, and that may happen any time
// after the hub has lost the older one.
func (conn *Link) nextClientID() string {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	if runs := conn.Runs(); conn.sid == "" || runs[0] == nil && runs[1] == nil {
		conn.sid = "comfyhub-" + uuid.NewString()
	}
	return conn.sid
}

// CaughtUp waits until everything the instance has sent so far has been read.
func (conn *Link) CaughtUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	return conn.Socket.CaughtUp(ctx)
}

// start keeps the link open until ctx ends or close is called.
func (conn *Link) start(ctx context.Context) {
	ctx, conn.stop = context.WithCancel(ctx)
	go func() {
		defer close(conn.done)
		conn.Socket.run(ctx)
	}()
}

// logged logs an error, unless ctx has ended, and returns it.
func (conn *Link) logged(ctx context.Context, what string, err error) error {
	if err != nil && ctx.Err() == nil {
		conn.Log.Warn(what, "error", err)
	}
	return err
}

// close ends the link and waits for it.
func (conn *Link) close() {
	conn.stop()
	<-conn.done
	conn.Cleanup.close()
	conn.Client.Close()
	conn.SetDown()
}

// setReached notes that the instance answers on a new socket.
func (conn *Link) setReached(version comfyui.Version) {
	conn.setVersion(version)
	conn.reach(version)
	conn.answers()
}

// SetOpen notes that the instance can take jobs.
func (conn *Link) SetOpen() {
	conn.touch()
	conn.Refused.forget()
	conn.admit()
}

// SetDown notes that the socket is lost, and reports whether that is news.
func (conn *Link) SetDown() (changed bool) {
	changed = conn.shut()
	conn.unload()
	conn.dropFlags()
	return changed
}

// Reopen opens the socket again. The instance gets nothing until then.
func (conn *Link) Reopen() {
	conn.SetDown()
	conn.Socket.reopen()
}

// Deliver hands an event to the runs that use this link.
func (conn *Link) Deliver(e Event) {
	for _, r := range conn.Runs() {
		if r != nil {
			r.Tell(e)
		}
	}
}

// Running returns the run that the instance is on, or nil.
func (conn *Link) Running() Holder { return conn.Runs()[0] }

// Has reports whether a queue item is one of the runs of this link.
func (conn *Link) Has(item comfyui.QueueItem) bool {
	for _, r := range conn.Runs() {
		if r == nil {
			continue
		}
		// The mark of another run cannot be read here, so any attempt at the job will do.
		if j := r.Job(); item.ID == j.Run.Upstream || item.Mark.Job == j.Key {
			return true
		}
	}
	return false
}

// Show tells the fleet that the instance is busy with a run, unless the run has been detached.
func (conn *Link) Show(r Holder) {
	if conn.report(r) {
		conn.lapse()
	}
}

// Idle describes the link for Pick; ok is false while it can take no job, and while it shows no sign
// of life.
func (conn *Link) Idle() (schedule.Idle, *catalog.Info, bool) {
	if !conn.vacant() || !conn.proven() {
		return schedule.Idle{}, nil, false
	}
	client, _ := conn.past.client()
	return schedule.Idle{Name: conn.Name, LastClient: client, Loaded: conn.Models()}, conn.Abilities(), true
}

// Next is idle for a job behind the run.
func (conn *Link) Next() (schedule.Idle, *catalog.Info, bool) {
	r := conn.behind()
	if r == nil || !conn.proven() {
		return schedule.Idle{}, nil, false
	}
	return schedule.Idle{Name: conn.Name, LastClient: r.Job().Client, Loaded: conn.Models()}, conn.Abilities(), true
}

// RanFor returns how long the instance has been executing a run; false if it has not
// begun.
func (conn *Link) RanFor(r Holder, now time.Time) (ran time.Duration, began bool) {
	since := conn.Since(r)
	return max(now.Sub(since), 0), !since.IsZero()
}

// RanLast reports whether the last job here was this client's. If so, whatever the instance has
// loaded is that client's too.
func (conn *Link) RanLast(tenant, client string) bool {
	if r := conn.Running(); r != nil {
		if j := r.Job(); j.Tenant != tenant || j.Client != client {
			return false
		}
	}
	lastClient, lastTenant := conn.past.client()
	return lastTenant == tenant && lastClient == client
}

// Gone reports whether an error means that the instance's process is gone, rather than unreachable.
func Gone(err error) bool { return errors.Is(err, comfyui.ErrGone) }

// Asked reports whether an error means that somebody asked for the restart.
func Asked(err error) bool { return errors.Is(err, comfyui.ErrRestarting) }
