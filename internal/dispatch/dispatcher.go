// Package dispatch decides which job goes where and follows each run to its end. It holds no jobs:
// whatever happens to this process, the queue knows which jobs are waiting and which are leased,
// and the instances know what they are running.
//
// Package schedule decides, Dispatcher asks it whenever a job arrives or an instance becomes idle,
// and a run does the rest.
package dispatch

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/schedule"
	"github.com/comfyhub/comfyhub/internal/stream"
	"github.com/comfyhub/comfyhub/internal/traces"
)

// Settings may change while the dispatcher runs.
type Settings struct {
	// StallTimeout is how long an instance may be silent in the middle of a run before it is asked
	// what it is doing.
	StallTimeout time.Duration
	// ContactTimeout is how long an instance may be unreachable in the middle of a run before the
	// run counts as lost.
	ContactTimeout time.Duration
	// Overtaking is how long a waiting job may be overtaken by jobs whose models an instance has
	// loaded, and by short ones of other tenants; if not positive, never.
	Overtaking time.Duration
	// ShortFirst lets short jobs go before long ones. It is how long a job may be overtaken in this
	// way, unless the job itself takes less time; if not positive, never.
	ShortFirst time.Duration
	// PreemptBulk lets a young run of a bulk job be interrupted for an interactive job that would
	// wait longer than this; if not positive, never.
	PreemptBulk time.Duration
	// JobTimeout bounds one run; 0 means no bound.
	JobTimeout time.Duration
	// UnrunnableTimeout is how long a job waits for an instance that could run it.
	UnrunnableTimeout time.Duration
	// CatalogAge is how old the hub's knowledge of an instance's classes and models may be when a
	// client asks for it.
	CatalogAge time.Duration
	// Split lets idle instances make the batch of one job together.
	Split bool
	// Ahead gives an instance its next job while it is still running one.
	Ahead bool
	// Reserved says which instances only some tenants may use.
	Reserved schedule.Reservations
	// SecretsTo says which instances get the API keys of prompts.
	SecretsTo SecretsTo
	// GPUs names the GPUs of instances, by instance name, where the operator has set them.
	GPUs map[string]string
	// Lease is the queue's; leases are renewed three times within it.
	Lease time.Duration
}

// Config is what a dispatcher works with.
type Config struct {
	Queue   *queue.Queue
	Fleet   *fleet.Registry
	Streams *stream.Streams
	// Files moves the inputs and outputs of runs.
	Files *files.Transfer
	// Paused says why no job may be given out now, or returns nil. Storage that takes no files is
	// such a reason. Call Wake once the reason is gone. May be nil.
	Paused func() error
	// Shown is passed each output of a job as the instance wrote it. May be nil.
	Shown func(tenant, instance string, output []byte)
	// Connected is told which instances are connected.
	Connected *comfyui.Clients
	// Connect makes the client of an instance.
	Connect func(fleet.Instance) (*comfyui.Client, error)
	// Library parses object_info; equal bodies are parsed once.
	Library *catalog.Library
	// Roster stores what instances can run. May be nil.
	Roster Roster
	// Learned is told what an instance can run when it connects and whenever that changes.
	Learned func(instance string, info *catalog.Info, version comfyui.Version)
	// Unfit says why nobody will ever run a waiting job that was accepted while it was not
	// known what any instance can run; nil if somebody might. It may be nil.
	Unfit func(ctx context.Context, j job.Job, body job.Body) *comfyui.Refused
	// Logged is told the log messages of an instance, see SubscribeLogs. It
	// must not block.
	Logged func(instance string, frame []byte)
	// EndedElsewhere is told of jobs that another hub has ended. It has a goroutine of its own and
	// may take its time, until ctx ends.
	EndedElsewhere func(ctx context.Context, e queue.Event)
	// Hub is the id and boot of this hub, unique per process.
	Hub string
	// HubID is the part of Hub that outlives the process.
	HubID string
	// Gone reports whether the process of another hub, which has stopped telling Redis that it is
	// alive, seems to be gone. Nil for a hub that is alone.
	Gone     func(ctx context.Context, hub string) bool
	Settings func() Settings
	// Faulted is told of lost runs and failed jobs, each with the reason. May be nil.
	Faulted func(j job.Job, instance, reason string, lost bool)
	// Traces returns the current tracer of jobs, nil for none. May be nil.
	Traces func() *traces.Tracer
	// Observe takes measurements. May be nil.
	Observe Observer
	Logger  *slog.Logger
}

// Roster stores what instances can run, for the next start and for other hubs.
type Roster interface {
	// Keep stores a body of /object_info. It must not wait, nor retain the body.
	Keep(instance string, version comfyui.Version, hash string, body []byte)
	// Recall returns what was stored under a hash, nil if there is nothing.
	Recall(ctx context.Context, hash string) *catalog.Info
	// Recalled notes that an instance has what Recall returned.
	Recalled(instance string, version comfyui.Version, hash string)
	// Elsewhere returns, by name, what the instances can run that other hubs have now and this one
	// does not.
	Elsewhere() map[string]*catalog.Info
}

// Dispatcher gives jobs to idle instances and follows them.
//
// Many methods: it pairs jobs with instances, and what is waiting, idle or running changes only
// together, under its lock.
type Dispatcher struct {
	Config
	queue    *queue.Queue
	streams  *stream.Streams
	log      *slog.Logger
	settings func() Settings

	ctx  context.Context
	stop context.CancelFunc
	// loops are the dispatcher's own. A panic in one of them ends the process, which is better than
	// a hub that does half its work. A panic in other work ends only that work.
	loops sync.WaitGroup
	work  panics.Group
	wake  chan struct{}
	// news counts the calls of Wake. nothing is the value of news when the loop started its last
	// look, if that look found nothing waiting; else 0.
	news    atomic.Uint64
	nothing uint64
	// arrived is the last job that was accepted with none ahead of it.
	arrived atomic.Pointer[newcomer]
	// affinity knows where each client's last job ran.
	affinity affinity
	// logsWanted says that somebody is reading the primary's log.
	logsWanted atomic.Bool
	// learning has a lane per agent, parsing one for all.
	learning lanes
	parsing  lanes
	budget   *budget
	doors    doors
	panels   panels
	free     freeSet
	// next are the connections whose instance could get its next job, holding those whose instance
	// has it already.
	next, holding freeSet
	// judged says which instances can run which classes.
	judged judgements
	// classes are the ones that the loop has met in the queue.
	classes classes
	// modelSets are the models of classes. overtaken are the jobs that were passed over for others
	// whose models were loaded.
	modelSets modelSets
	overtaken schedule.Overtaken
	holds     holds
	kept      keptGPUs
	// leaving are the runs that make way for interactive jobs.
	leaving leaving
	// durations and line tell when jobs will be finished.
	durations durations
	line      waitLine
	outlook   lastOutlook
	// refused are the jobs that this hub cannot run. rest is firstRest, except in tests.
	refused refusals
	rest    time.Duration
	// memory knows which jobs need more GPU memory than some instances have.
	memory memory
	// health knows on which instances jobs keep failing.
	health health
	// silent passes hubs to inherit to look at.
	silent chan []string
	// lost are the runs that the last renewal did not find.
	lost   chan []job.Run
	buried buried
	// watched says that somebody is watching the fleet.
	watched interest
	// stuck is the last count that watch made.
	stuck atomic.Int64

	mu          sync.Mutex
	connections map[string]*connection
	// runs are those that this hub follows, by job key.
	runs map[string]*run
	// doubtful are the upstream ids of claims without an answer.
	doubtful map[string]bool
	// unrunnable says since when tenants find no present instance that can run a class, and
	// lacking, for those of which nobody finds one, why.
	unrunnable map[unrunnable]time.Time
	lacking    map[string]string
	// unfit is when waiting jobs of a class were last checked that were accepted unchecked.
	unfit map[string]time.Time
}

// New makes a dispatcher; Start sets it going.
func New(c Config) *Dispatcher {
	ctx, stop := context.WithCancel(context.Background())
	if c.Traces == nil {
		c.Traces = func() *traces.Tracer { return nil }
	}
	if c.Observe == nil {
		c.Observe = unobserved{}
	}
	d := &Dispatcher{
		Config: c, queue: c.Queue, streams: c.Streams, log: c.Logger, settings: c.Settings,
		ctx: ctx, stop: stop, wake: make(chan struct{}, 1), silent: make(chan []string, 1), lost: make(chan []job.Run, 1), budget: newBudget(), rest: firstRest,
		connections: map[string]*connection{}, runs: map[string]*run{}, doubtful: map[string]bool{}, unrunnable: map[unrunnable]time.Time{},
	}
	d.judged.standIns = d.standIns
	return d
}

// Start connects to the instances and begins to dispatch.
func (d *Dispatcher) Start() {
	d.loops.Go(func() { d.followFleet(d.ctx) })
	d.loops.Go(func() { d.followQueue(d.ctx) })
	d.loops.Go(func() { d.loop(d.ctx) })
	d.loops.Go(func() { d.keepLeases(d.ctx) })
	d.loops.Go(func() { d.tendRuns(d.ctx) })
	if d.Gone != nil {
		d.loops.Go(func() { d.keepBeating(d.ctx) })
		d.loops.Go(func() { d.inherit(d.ctx) })
	}
	d.work.Go(d.log, "looking for stuck jobs", func() { d.watch(d.ctx) })
	d.work.Go(d.log, "learning how long jobs run", func() { d.tendDurations(d.ctx) })
}

// Close stops all work and waits for it. Runs continue on their instances; another hub takes them
// over, at the latest when their leases end.
func (d *Dispatcher) Close() {
	d.stop()
	d.loops.Wait()
	d.work.Wait()
	if d.Gone != nil {
		d.quit()
	}
	d.mu.Lock()
	conns := d.connections
	d.connections = map[string]*connection{}
	d.mu.Unlock()
	var closing sync.WaitGroup // each may be waiting for an instance that does not answer
	for name, conn := range conns {
		d.Connected.Set(name, nil)
		closing.Go(conn.close)
	}
	closing.Wait()
}

// Wake makes the dispatcher look for work at once. It never blocks.
func (d *Dispatcher) Wake() {
	d.news.Add(1)
	d.freed()
}

// newcomer is a job that was accepted when none was ahead of it. news is the counter at that time:
// once it has changed, other jobs may be ahead.
type newcomer struct {
	job  job.Job
	news uint64
}

// Arrived makes the dispatcher look for an instance for a job that this hub has accepted with
// position others ahead of it. It never blocks.
func (d *Dispatcher) Arrived(j job.Job, position int) {
	a := &newcomer{j, d.news.Add(1)}
	if position == 0 {
		d.arrived.Store(a)
	}
	d.freed()
}

// firstInLine returns the first of the waiting jobs, if it is known without a look at the queue
// because an otherwise idle fleet has just got it. Its class is known by then. Claiming it fails if
// it is gone or must not run now.
func (d *Dispatcher) firstInLine(ctx context.Context) (j job.Job, known bool) {
	a := d.arrived.Swap(nil)
	if a == nil || a.news != d.news.Load() {
		return job.Job{}, false
	}
	if d.classes[a.job.Class] == nil {
		if any, err := d.meet(ctx, []string{a.job.Class}); err != nil || !any {
			return job.Job{}, false
		}
	}
	return a.job, true
}

// freed makes the dispatcher look for work for an instance that is now idle. It does not look at a
// queue that it has found empty since the last Wake.
func (d *Dispatcher) freed() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// safetyTick finds work that would be left undone if a hint were lost. It is not how work is
// normally found.
const safetyTick = 2 * time.Second

// loop makes a pass over queue and fleet whenever something happened.
func (d *Dispatcher) loop(ctx context.Context) {
	tick := time.NewTicker(safetyTick)
	defer tick.Stop()
	for {
		asked := d.awaited()
		next, err := d.pass(ctx)
		if err != nil && ctx.Err() == nil {
			d.log.Debug("cannot look for work", "error", err)
		}
		d.dismiss(ctx, asked)
		if due := d.makeWay(ctx); due > 0 && (next == 0 || due < next) {
			next = due
		}
		var due <-chan time.Time
		if next > 0 {
			due = time.After(next)
		}
		select {
		case <-d.wake:
		case <-due:
		case <-tick.C:
			d.nothing = 0 // a hint may have been lost
			d.expire(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// launch registers a run and starts it.
func (d *Dispatcher) launch(r *run, steps func(context.Context) result) {
	j := r.job()
	d.mu.Lock()
	d.runs[j.Key] = r
	d.mu.Unlock()
	if r.conn != nil {
		d.affinity.note(j.Tenant, j.Client, r.conn.name)
	}
	d.work.Go(r.log, "ending a run", func() {
		v := r.perform(d.ctx, steps)
		d.mu.Lock()
		if d.runs[j.Key] == r {
			delete(d.runs, j.Key)
		}
		d.mu.Unlock()
		r.free()
		if v == jobEnded {
			d.memory.forget(j.Key)
		}
		if v != rejected { // otherwise no count that anybody has seen has changed
			d.streams.StatusChanged(d.callers(j)...)
		}
	})
}

// callers returns the callers whose counts a job changes.
func (d *Dispatcher) callers(j job.Job) []string { return []string{j.Caller} }

// progressed notes the progress of a run in the queue, at most once a second.
func (d *Dispatcher) progressed(r *run, m comfyui.Message) {
	top := m.Float("max")
	if top <= 0 {
		return
	}
	fraction := min(max(m.Float("value")/top, 0), 1)
	r.doing.progressed(fraction)
	if r.doing.classless() && r.d.watched.any() {
		r.tellNode()
	}
	if time.Since(r.noted) < time.Second {
		return
	}
	r.noted = time.Now()
	r.beside("noting the progress of a run", func() { _ = d.queue.Progress(d.ctx, r.lease(), fraction) })
	conn := r.conn
	r.beside("reading how much memory a run takes", func() { r.weigh(d.ctx, conn) })
}
