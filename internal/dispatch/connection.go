package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
)

// connection is the hub's connection to one instance: a client, one persistent WebSocket, what the
// instance can run, and its current run.
//
// Many methods: the dispatcher asks it small questions about one instance, all answered from the
// state that its lock guards.
type connection struct {
	name   string
	url    string
	kind   string
	key    string // of its agent
	owner  string // the agent, or the instance itself if it has none
	client *comfyui.Client
	fleet  *fleet.Registry
	log    *slog.Logger
	stop   context.CancelFunc
	done   chan struct{}
	ask    *asking
	socket *eventSocket
	// cleanup removes finished runs from the instance's own history.
	cleanup *historyCleanup
	// overheard tells broadcasts from messages to one client; background knows what says nothing
	// about a run.
	overheard  overheard
	background background
	// maySecrets reports whether the instance gets API keys now. Nil in tests: it gets none.
	maySecrets func() bool
	// free holds the connection while it can take a job. Nil in tests.
	free *freeSet
	// next does the same for a job behind the run. holding holds the connection while it has one.
	next, holding *freeSet
	// wake is called when the instance may take a job that it was not given before because it
	// showed no sign of life. Nil in tests.
	wake func()

	mu sync.Mutex
	// sid is the client id of the socket, see clientID.
	sid string
	// reached says that the socket is open and the instance answers, so that it can be asked about
	// its runs. open says that its abilities are known too, so that it can get jobs.
	reached, open bool
	// seen is when the instance last showed a sign of life; said is when a message last came, or
	// when it was last reached. silent says that the fleet was told of its silence.
	seen, said time.Time
	silent     bool
	info       *catalog.Info
	version    comfyui.Version
	// flags are what the instance has announced on this socket; nil if nothing.
	flags   comfyui.Flags
	current *run
	// ahead waits at the instance behind the current run. begun is the run that started to execute
	// last, and began is when.
	ahead, begun *run
	began        time.Time
	// former are the sockets of runs that were taken over, by client id.
	former map[string]*formerSocket
	// freeSince is when the instance last became free.
	freeSince time.Time
	// lastClient is the client whose job ran here last, and lastTenant its tenant.
	lastClient, lastTenant string
	// loaded are the models of the run that began here last, sorted. cold says that it had to load
	// them.
	loaded []string
	cold   bool
	// others is the last run that another hub gave the instance.
	others othersRun
	// precedence says whether another hub may give it the next run first.
	precedence precedence
	// last is the last run that the instance finished. It may not have been released yet.
	last job.Run
	// refused are the jobs that this instance did not take, until its abilities are read again.
	refused refusals
	// given are the prompt ids that the instance has been given, see upstreamID.
	given map[string]bool
}

// clientID returns the client id to which the instance sends messages about the runs of this
// connection.
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
	if conn.sid == "" || conn.current == nil && conn.ahead == nil {
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

// start keeps the connection open until ctx ends or close is called.
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

// close ends the connection and waits for it.
func (conn *connection) close() {
	conn.stop()
	<-conn.done
	conn.cleanup.close()
	conn.client.Close()
	conn.setDown()
}

// setReached notes that the instance answers on a new socket.
func (conn *connection) setReached(version comfyui.Version) {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	conn.reached, conn.version = true, version
	conn.silent = true // the previous connection may have told the fleet so
	conn.see()
	conn.said = conn.seen
}

// setOpen notes that the instance can take jobs.
func (conn *connection) setOpen() {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	conn.open = true
	conn.see()
	conn.said, conn.freeSince = conn.seen, conn.seen
	conn.refused.forget()
	conn.changed()
}

// setDown notes that the socket is lost, and reports whether that is news.
func (conn *connection) setDown() (changed bool) {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	changed = conn.reached
	conn.reached, conn.open = false, false
	conn.loaded, conn.flags = nil, nil // it may be another process next time
	conn.changed()
	return changed
}

// deliver hands an event to the runs that use this connection.
func (conn *connection) deliver(e runEvent) {
	for _, r := range conn.runs() {
		if r != nil {
			r.mail.put(e)
		}
	}
}

// attach makes a run the receiver of the instance's messages. Call it before the POST: frames of a
// run can arrive before the reply.
func (conn *connection) attach(r *run) bool {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	if conn.current != nil {
		return false
	}
	conn.current = r
	conn.changed()
	return true
}

// show tells the fleet that the instance is busy with a run, unless the run has been detached: an
// instance can refuse a prompt before the hub gets this far, and would then be shown as busy for
// ever.
func (conn *connection) show(r *run) {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	if conn.current == r {
		conn.precedence = precedence{}
		conn.fleet.SetRunning(conn.name, r.job().ID)
	}
}

// detach frees the connection, so the instance may take another job. It reports whether the run had
// the connection.
func (conn *connection) detach(r *run) bool {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	switch r {
	case conn.ahead:
		conn.ahead = nil
		conn.changed()
		return true
	case conn.current:
	default:
		return false
	}
	conn.moveUp()
	conn.freeSince = time.Now()
	if j := r.job(); j.Client != "" {
		conn.lastClient, conn.lastTenant = j.Client, j.Tenant
	}
	return true
}

// ended notes that the instance has finished a run. A report that still shows the run is out of
// date.
func (conn *connection) ended(run job.Run) {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	conn.last = run
}

// after returns the last run that the instance finished.
func (conn *connection) after() job.Run {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	return conn.last
}

// idleFor returns how long the instance has been waiting for work.
func (conn *connection) idleFor() time.Duration {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	return time.Since(conn.freeSince)
}

// capability returns the instance's version.
func (conn *connection) capability() comfyui.Version {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	return conn.version
}

// takeFlags takes the instance's answer to the hub's feature_flags, of which there is one for each
// socket.
func (conn *connection) takeFlags(f comfyui.Frame) bool {
	flags, ok := comfyui.ParseFlags(f)
	if !ok {
		return false
	}
	conn.mu.Lock()
	defer conn.mu.Unlock()
	if conn.flags == nil {
		conn.flags = flags
	}
	return true
}

// announces returns the instance's flags; nil if it has announced none.
func (conn *connection) announces() comfyui.Flags {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	return conn.flags
}

// setInfo stores what the instance can run, see takeWhole and takePart.
func (conn *connection) setInfo(info *catalog.Info) {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	conn.info = info
	conn.changed()
}

// abilities returns what the instance can run, nil until that is known.
func (conn *connection) abilities() *catalog.Info {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	return conn.can()
}

// can is abilities for a caller that holds the lock.
func (conn *connection) can() *catalog.Info {
	conn.info = conn.info.WithSecrets(conn.getsSecrets())
	return conn.info
}

// getsSecrets reports whether the instance gets the API keys of prompts at the moment.
func (conn *connection) getsSecrets() bool { return conn.maySecrets != nil && conn.maySecrets() }

// isReached reports whether the instance can be asked about its runs.
func (conn *connection) isReached() bool {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	return conn.reached
}

// isOpen reports whether the instance answers and its abilities are known.
func (conn *connection) isOpen() bool {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	return conn.open
}

// running returns the run that the instance is on, or nil.
func (conn *connection) running() *run { return conn.runs()[0] }

// ranLast reports whether the last job here was this client's. If so, whatever the instance has
// loaded is that client's too.
func (conn *connection) ranLast(tenant, client string) bool {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	if r := conn.current; r != nil {
		if j := r.job(); j.Tenant != tenant || j.Client != client {
			return false
		}
	}
	return conn.lastTenant == tenant && conn.lastClient == client
}

// gone reports whether an error means that the instance's process is gone, rather than unreachable.
func gone(err error) bool { return errors.Is(err, comfyui.ErrGone) }

// asked reports whether an error means that somebody asked for the restart.
func asked(err error) bool { return errors.Is(err, comfyui.ErrRestarting) }
