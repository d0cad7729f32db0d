package dispatch

import (
	"context"
	"time"

	"github.com/comfyhub/comfyhub/internal/learned"
	"github.com/comfyhub/comfyhub/internal/run"

	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// Forecasts tells when jobs will be finished.
type Forecasts struct {
	fleet     *fleet.Registry
	queue     *queue.Queue
	settings  func() Settings
	access    *Access
	reports   *instance.Reports
	instances *Instances
	runs      *run.Runs
	rests     *rests
	durations *learned.Durations
	sharing   *sharing
	kept      *keptGPUs
	models    *modelSets
	users     *modelUsers
	holds     *holds
	line      *waitLine
	judged    *judgements
	overflow  *overflow
	last      lastOutlook
}

// An outlook answers for further jobs until it is outlookShare times as old as the time it took to
// make, and at most outlookAge: looking at hundreds of instances for each of hundreds of accepted
// jobs would cost too much.
const (
	outlookShare = 20
	outlookAge   = 250 * time.Millisecond
)

// lastOutlook is the one that answers for accepted jobs, at first none.
type lastOutlook struct {
	// turn belongs to whoever uses it or makes another one. It is no mutex, because making one may cost a
	// round trip and whoever waits for that may leave.
	turn *semaphore.Weighted
	last *Outlook
}

// Accepted notes a job that was accepted with position others ahead of it, and returns how long it
// will take until it is finished, as [Outlook.ETA] does; -1 if ctx ends before that is known.
func (f *Forecasts) Accepted(ctx context.Context, j job.Job, position int) time.Duration {
	if position >= 0 && j.State == job.Queued {
		f.line.join(inLine(j), position)
	}
	if f.last.turn.Acquire(ctx, 1) != nil {
		return -1
	}
	defer f.last.turn.Release(1)
	if o := f.last.last; o == nil || time.Since(o.at) > min(outlookShare*o.took, outlookAge) || !o.judged[j.Class] {
		f.last.last = f.From(ctx, j)
	}
	return f.last.last.ETA(j, position)
}

// From looks ahead at the first waiting jobs, as [schedule.Forecast] says. Classes that this
// hub does not know yet cost a round trip.
func (f *Forecasts) From(ctx context.Context, jobs ...job.Job) *Outlook {
	o := newOutlook(f)
	h := schedule.Horizon{
		Line:       f.line.first(),
		ShortFirst: f.settings().ShortFirst > 0, Overtaking: f.settings().Overtaking > 0,
		Estimate: o.estimate,
		Models: func(class string) []string {
			models, _ := f.models.of(class)
			return models
		},
	}
	o.look(ctx, &h, jobs)
	o.Forecast = schedule.Foresee(h)
	o.took = time.Since(o.at)
	return o
}

// Left returns a function that says how much longer a job will take that an instance has; -1 if unknown.
// It knows no more than when it was made.
func (f *Forecasts) Left() func(job.Job) time.Duration {
	o := newOutlook(f)
	return func(j job.Job) time.Duration {
		if r := f.runs.Get(j.Key); r != nil {
			return o.given(r)
		}
		return o.ETA(j, -1)
	}
}

// soon lists the busy instances for which it is known when they will be free, with those of the
// classes that they can run.
func (f *Forecasts) soon(classes map[string][]byte) []schedule.Soon {
	o := newOutlook(f)
	var list []schedule.Soon
	var idle []schedule.Idle
	var infos []*catalog.Info
	for _, conn := range f.instances.Open() {
		i, known := f.fleet.Instance(conn.Name)
		loaded, info, gpu := conn.Models(), conn.Abilities(), f.reports.Gpu(conn.Name)
		if !known || conn.Kind == fleet.KindOverflow || i.State != fleet.Busy || len(loaded) == 0 || info == nil || !o.foreseen(conn, i, gpu) {
			continue
		}
		s := schedule.Soon{Idle: schedule.Idle{Name: conn.Name, Loaded: loaded, Tenants: f.access.reservedFor(conn.Name)}, Free: o.left(conn, i, gpu)}
		f.rests.keep(&s.Idle, conn, i)
		list, idle, infos = append(list, s), append(idle, s.Idle), append(infos, info)
	}
	f.judged.able(idle, infos, classes)
	for n := range list {
		list[n].Idle = idle[n]
	}
	return list
}

// WaitsFor returns the busy instance that a job is waiting for because it has the job's models
// loaded, "" if none.
func (f *Forecasts) WaitsFor(key string) string { return f.holds.of(key, time.Now()) }

// Spent returns where the time of runs like a job's goes, and of how many runs that is known, on
// average and at least: on the type of GPU that has run it, if that is known, or on any.
func (f *Forecasts) Spent(shape, instance string) (mean, least schedule.Spent, runs int) {
	s, ok := schedule.DecodeStructure(shape)
	if !ok {
		return nil, nil, 0
	}
	return f.durations.Spending.Of(s, f.reports.Gpu(instance))
}

// Loading returns how much longer a run like a job's takes that has to load its models, and how
// many of the last runs had to; zeros if that is not known.
func (f *Forecasts) Loading(shape, instance string) (extra time.Duration, cold, runs int) {
	s, ok := schedule.DecodeStructure(shape)
	if !ok {
		return 0, 0, 0
	}
	return f.durations.Known.Loading(s, f.reports.Gpu(instance))
}
