// Package dispatch decides which job goes where. It holds no jobs: whatever happens to this process,
// the queue knows which jobs are waiting and which are leased, and the instances know what they are
// running.
//
// Package schedule decides, Dispatcher asks it whenever a job arrives or an instance becomes idle,
// and package run follows each job from there to its end.
package dispatch

import (
	"context"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/learned"
	"github.com/comfyhub/comfyhub/internal/lease"
	"github.com/comfyhub/comfyhub/internal/run"

	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/traces"
)

// Dispatcher gives jobs to idle instances and follows them. It makes the parts that do so, each from
// the parts that it needs, and runs their loops.
type Dispatcher struct {
	Config
	Access    *Access
	Affinity  *Affinity
	Blame     *Blame
	Discovery *instance.Discovery
	Doors     *run.Doors
	Forecasts *Forecasts
	Instances *Instances
	Lessons   *run.Lessons
	Logs      *instance.Logs
	Notices   *run.Notices
	Openings  *Openings
	Panels    *instance.Panels
	Repeats   *run.Repeats
	Runs      *run.Runs
	Waiting   *Waiting
	Watchdog  *Watchdog

	claimer      *claimer
	durations    *learned.Durations
	heartbeat    *lease.Heartbeat
	holds        *holds
	judged       *judgements
	kept         *keptGPUs
	leases       *lease.Leases
	line         *waitLine
	links        *instance.Room
	listener     *listener
	memory       *run.Memory
	models       *modelSets
	users        *modelUsers
	order        *order
	otherHubs    *otherHubs
	overflow     *overflow
	placer       *placer
	preemption   *preemption
	reports      *instance.Reports
	requirements *requirements
	rests        *rests
	runner       *run.Runner
	sharing      *sharing
	signal       *signal

	ctx  context.Context
	stop context.CancelFunc
	// loops are the dispatcher's own. A panic in one of them ends the process, which is better than
	// a hub that does half its work. A panic in other work ends only that work.
	loops sync.WaitGroup
	work  panics.Group
}

// New makes a dispatcher; Start sets it going.
func New(c Config) *Dispatcher {
	if c.Traces == nil {
		c.Traces = func() *traces.Tracer { return nil }
	}
	if c.Observe == nil {
		c.Observe = run.Unobserved()
	}
	if c.Paused == nil {
		c.Paused = func() error { return nil }
	}
	d := &Dispatcher{
		Config: c, signal: newSignal(), judged: &judgements{}, holds: &holds{}, kept: &keptGPUs{}, Runs: run.NewRuns(),
		models: &modelSets{queue: c.Queue}, users: &modelUsers{}, line: &waitLine{queue: c.Queue, log: c.Logger},
	}
	d.ctx, d.stop = context.WithCancel(context.Background())
	d.openInstances()
	d.openPlacing()
	d.openRuns()
	return d
}

// openInstances makes the parts that keep the connections to the instances.
func (d *Dispatcher) openInstances() {
	c := d.Config
	parts := instance.New(instance.Config{
		Fleet: c.Fleet, Connected: c.Connected, Connect: c.Connect, Library: c.Library, Roster: c.Roster, Learned: c.Learned, Logged: c.Logged,
		Streams: c.Streams, Ctx: d.ctx, Work: &d.work, Logger: c.Logger,
		MaySecrets:     func(i fleet.Instance) bool { return c.Settings().givesSecrets(i) },
		APIOnly:        func(i fleet.Instance) bool { return c.Settings().takesAPIOnly(i.Name) },
		ContactTimeout: func() time.Duration { return c.Settings().ContactTimeout },
		CatalogAge:     func() time.Duration { return c.Settings().CatalogAge },
		GPUs:           func() map[string]string { return c.Settings().GPUs },
		Above: struct {
			*signal
			*run.Superseded
		}{d.signal, run.NewSuperseded(c.Queue, d.runSettings)},
	})
	d.links, d.reports, d.Discovery, d.Logs, d.Panels = parts, parts.Reports, parts.Discovery, parts.Logs, parts.Panels
	d.Access = &Access{fleet: c.Fleet, settings: c.Settings, judged: d.judged}
	d.Instances = &Instances{Links: parts.Links, access: d.Access}
	d.Affinity = &Affinity{instances: d.Instances}
	d.otherHubs = &otherHubs{roster: c.Roster, access: d.Access, instances: d.Instances}
	d.Lessons = run.NewLessons(c.Fleet, c.Queue)
	d.Blame = &Blame{
		Health: run.NewHealth(c.Fleet, d.reports, d.Instances.Links, d.signal, c.Logger),
		fleet:  c.Fleet, access: d.Access, reports: d.reports, instances: d.Instances, runs: d.Runs, judged: d.judged,
	}
	d.judged.standIns, d.judged.forAPI = d.Blame.standIns, d.Blame.forAPI
}

// runSettings are the settings of runs as they are now.
func (d *Dispatcher) runSettings() run.Settings { return d.Settings().Settings }

// elsewhere is what runs are told of the rest of the fleet.
type elsewhere struct {
	*Instances
	*otherHubs
	*Openings
}

// openPlacing makes the parts that decide which job goes where.
func (d *Dispatcher) openPlacing() {
	c := d.Config
	d.memory = run.NewMemory(c.Fleet, d.reports, d.Instances.Links)
	d.rests = &rests{signal: d.signal, memory: d.memory, first: instance.FirstRest}
	d.durations = learned.New(c.Queue, d.reports, c.Logger)
	d.sharing = &sharing{fleet: c.Fleet, settings: c.Settings, instances: d.Instances, durations: d.durations}
	d.Openings = &Openings{
		fleet: c.Fleet, settings: c.Settings, paused: c.Paused, access: d.Access, reports: d.reports, instances: d.Instances,
		health: d.Blame.Health, sharing: d.sharing, rests: d.rests, signal: d.signal,
	}
	d.Forecasts = &Forecasts{
		fleet: c.Fleet, queue: c.Queue, settings: c.Settings, access: d.Access, reports: d.reports, instances: d.Instances, runs: d.Runs,
		rests: d.rests, durations: d.durations, sharing: d.sharing, kept: d.kept, models: d.models, users: d.users, holds: d.holds,
		line: d.line, judged: d.judged, last: lastOutlook{turn: semaphore.NewWeighted(1)},
	}
	d.order = &order{settings: c.Settings, durations: d.durations, reports: d.reports, line: d.line, models: d.models, holds: d.holds}
	d.requirements = &requirements{queue: c.Queue, judged: d.judged, order: d.order}
	d.Notices = run.NewNotices(c.Queue, c.Streams)
	d.Waiting = &Waiting{
		queue: c.Queue, settings: c.Settings, check: c.Unfit, paused: c.Paused, traces: c.Traces, access: d.Access, instances: d.Instances,
		otherHubs: d.otherHubs, judged: d.judged, notices: d.Notices, log: c.Logger,
	}
	d.preemption = &preemption{
		fleet: c.Fleet, queue: c.Queue, settings: c.Settings, paused: c.Paused, access: d.Access, reports: d.reports, instances: d.Instances,
		rests: d.rests, durations: d.durations, line: d.line, requirements: d.requirements, forecasts: d.Forecasts,
		notices: d.Notices, log: c.Logger,
	}
	d.Watchdog = &Watchdog{
		queue: c.Queue, instances: d.Instances, openings: d.Openings, blame: d.Blame, holds: d.holds, kept: d.kept, judged: d.judged,
		signal: d.signal, log: c.Logger,
	}
}

// openRuns makes the parts that begin runs and follow them.
func (d *Dispatcher) openRuns() {
	c := d.Config
	d.Doors = run.NewDoors(c.Queue, d.Runs, d.signal)
	d.runner = run.NewRunner(run.Around{
		Queue: c.Queue, Streams: c.Streams, Fleet: c.Fleet, Files: c.Files, Settings: d.runSettings, Observe: c.Observe, Shown: c.Shown,
		Faulted: c.Faulted, Traces: c.Traces, Given: func(j job.Job, instance string) { d.Affinity.note(j.Tenant, j.Client, instance) },
		Reports: d.reports, Links: d.Instances.Links, Discovery: d.Discovery, Elsewhere: elsewhere{d.Instances, d.otherHubs, d.Openings},
		Health: d.Blame.Health, Rests: d.rests, Memory: d.memory, Durations: d.durations,
		Runs: d.Runs, Doors: d.Doors, Notices: d.Notices, Signal: d.signal, Ctx: d.ctx, Work: &d.work, Logger: c.Logger,
	})
	d.claimer = &claimer{
		queue: c.Queue, hub: c.Hub, instances: d.Instances, requirements: d.requirements, durations: d.durations, models: d.models, users: d.users, line: d.line,
		holds: d.holds, rests: d.rests, notices: d.Notices, runner: d.runner, observe: c.Observe, ctx: d.ctx, log: c.Logger,
	}
	d.Repeats = run.NewRepeats(d.runner, c.Hub, d.line.leave)
	d.placer = &placer{
		fleet: c.Fleet, settings: c.Settings, access: d.Access, instances: d.Instances, openings: d.Openings, blame: d.Blame,
		requirements: d.requirements, order: d.order, forecasts: d.Forecasts, holds: d.holds, kept: d.kept, judged: d.judged,
		claimer: d.claimer, signal: d.signal,
	}
	d.overflow = &overflow{
		remote: c.Overflow, fleet: c.Fleet, queue: c.Queue, paused: c.Paused, instances: d.Instances, placer: d.placer,
		requirements: d.requirements, forecasts: d.Forecasts, notices: d.Notices, access: d.Access,
	}
	d.placer.overflow, d.Forecasts.overflow = d.overflow, d.overflow
	d.leases = lease.New(lease.Config{
		Queue: c.Queue, Lease: func() time.Duration { return c.Settings().Lease }, Hub: c.Hub, HubID: c.HubID,
		Runs: d.Runs, Runner: d.runner, Observe: c.Observe, Logger: c.Logger,
	})
	d.heartbeat = lease.NewHeartbeat(d.leases, d.Instances.Links, c.Gone, &d.work)
	d.listener = &listener{
		queue: c.Queue, streams: c.Streams, hub: c.Hub, endedElsewhere: c.EndedElsewhere, instances: d.Instances, runs: d.Runs, leases: d.leases,
		doors: d.Doors, line: d.line, models: d.models, signal: d.signal, ctx: d.ctx, work: &d.work, log: c.Logger,
	}
}

// Start connects to the instances and begins to dispatch.
func (d *Dispatcher) Start() {
	d.loops.Go(func() { d.links.Follow(d.ctx) })
	d.loops.Go(func() { d.listener.follow(d.ctx) })
	d.loops.Go(func() { d.loop(d.ctx) })
	d.loops.Go(func() { d.leases.Keep(d.ctx) })
	d.loops.Go(func() { d.leases.Tend(d.ctx) })
	if d.Gone != nil {
		d.loops.Go(func() { d.heartbeat.Beat(d.ctx) })
		d.loops.Go(func() { d.heartbeat.Inherit(d.ctx) })
	}
	d.work.Go(d.Logger, "looking for stuck jobs", func() { d.Watchdog.watch(d.ctx) })
	d.work.Go(d.Logger, "keeping the line up to date", func() { d.line.tend(d.ctx) })
	d.work.Go(d.Logger, "learning how long jobs run", func() { d.durations.Tend(d.ctx) })
}

// Close stops all work and waits for it. Runs continue on their instances; another hub takes them
// over, at the latest when their leases end.
func (d *Dispatcher) Close() {
	d.stop()
	d.loops.Wait()
	d.work.Wait()
	if d.Gone != nil {
		d.heartbeat.Quit()
	}
	d.Instances.Close()
}

// Wake makes the dispatcher look for work at once. It never blocks.
func (d *Dispatcher) Wake() { d.signal.Wake() }

// Arrived makes the dispatcher look for an instance for a job that this hub has accepted with
// position others ahead of it. It never blocks.
func (d *Dispatcher) Arrived(j job.Job, position int) { d.signal.arrive(j, position) }

// safetyTick finds work that would be left undone if a hint were lost. It is not how work is
// normally found.
const safetyTick = 2 * time.Second

// loop makes a pass over queue and fleet whenever something happened.
func (d *Dispatcher) loop(ctx context.Context) {
	tick := time.NewTicker(safetyTick)
	defer tick.Stop()
	for {
		asked := d.Doors.Awaited()
		next, err := d.placer.look(ctx)
		if err != nil && ctx.Err() == nil {
			d.Logger.Debug("cannot look for work", "error", err)
		}
		d.Doors.Dismiss(ctx, asked)
		if due := d.preemption.makeWay(ctx); due > 0 && (next == 0 || due < next) {
			next = due
		}
		if due := d.overflow.look(ctx); due > 0 && (next == 0 || due < next) {
			next = due
		}
		var due <-chan time.Time
		if next > 0 {
			due = time.After(next)
		}
		select {
		case <-d.signal.ch:
		case <-due:
		case <-tick.C:
			d.placer.nothing = 0 // a hint may have been lost
			d.Waiting.expire(ctx)
		case <-ctx.Done():
			return
		}
	}
}
