package dispatch

import (
	"context"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/run"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// Outlook tells when jobs will be finished, as seen from the moment it was made.
type Outlook struct {
	*schedule.Forecast
	from *Forecasts
	at   time.Time
	took time.Duration
	// judged are the classes that it knows about.
	judged map[string]bool
	// free is when instances will have finished what they are running; -1 where unknown.
	free  map[string]time.Duration
	known map[[2]string]schedule.Estimate
}

func newOutlook(d *Forecasts) *Outlook {
	return &Outlook{from: d, at: time.Now(), judged: map[string]bool{}, known: map[[2]string]schedule.Estimate{}, free: map[string]time.Duration{}}
}

// look lists the instances that take jobs.
func (o *Outlook) look(ctx context.Context, h *schedule.Horizon, jobs []job.Job) {
	var classes []string
	note := func(class string) {
		if !o.judged[class] {
			o.judged[class] = true
			classes = append(classes, class)
		}
	}
	for _, j := range h.Line {
		note(j.Class)
	}
	for _, j := range jobs {
		if j.State == job.Queued {
			note(j.Class)
		}
	}
	if len(classes) == 0 {
		return
	}
	texts, err := o.from.queue.Requirements(ctx, classes)
	if err != nil {
		return
	}
	said := o.from.settings().GPUs
	h.Shared = o.from.sharing.gpus()
	var idle []schedule.Idle
	var infos []*catalog.Info
	for _, conn := range o.from.instances.Open() {
		i, known := o.from.fleet.Instance(conn.Name)
		info := conn.Abilities()
		if !known || info == nil || conn.Kind == fleet.KindOverflow || i.State != fleet.Idle && i.State != fleet.Busy {
			continue
		}
		idle, infos = append(idle, schedule.Idle{Name: conn.Name, Tenants: o.from.access.reservedFor(conn.Name)}), append(infos, info)
		s := schedule.Spot{Kind: schedule.GPUType(i.Report.GPU), Set: schedule.SetOf(conn.Models()), Device: instance.GPUName(said, i)}
		s.Free, s.Guessed = o.left(conn, i, s.Kind), !o.foreseen(conn, i, s.Kind)
		if h.Shared[s.Device] != nil {
			s.Shape, _ = o.from.sharing.shapeAt(i)
		}
		h.Spots = append(h.Spots, s)
		if o.free[conn.Name] = s.Free; s.Guessed {
			o.free[conn.Name] = -1
		}
	}
	o.from.judged.able(idle, infos, texts)
	for n := range idle {
		h.Spots[n].Idle = idle[n]
	}
}

// left returns how much longer an instance will be busy.
func (o *Outlook) left(conn *instance.Link, i fleet.Instance, gpu string) time.Duration {
	runs := conn.Runs()
	switch {
	case runs[0] != nil:
		sum := o.rest(conn, runs[0], gpu)
		if runs[1] != nil {
			sum += o.estimate(runs[1].Job().Shape, gpu).Ran
		}
		return sum
	case i.State == fleet.Busy: // with a run of another hub
		if shape, since, ok := conn.Elsewhere(i); ok {
			return schedule.Remaining(o.estimate(shape, gpu).Ran, time.Since(since))
		}
		return o.estimate("", gpu).Ran / 2
	}
	return 0
}

// rest returns how much longer the current run of an instance will take.
func (o *Outlook) rest(conn *instance.Link, r instance.Holder, gpu string) time.Duration {
	e := o.estimate(r.Job().Shape, gpu)
	if conn.IsCold() {
		e.Ran += e.Load
	}
	ran, began := conn.RanFor(r, time.Now())
	if !began {
		return e.Ran
	}
	return schedule.Remaining(e.Ran, ran)
}

func (o *Outlook) estimate(shape, gpu string) schedule.Estimate {
	k := [2]string{shape, gpu}
	e, ok := o.known[k]
	if !ok {
		if e = o.from.durations.Estimate(shape, gpu); e.Certain() { // otherwise it may be known in a moment
			o.known[k] = e
		}
	}
	return e
}

// ETA returns how long it will take until a job is finished; -1 if unknown. position is the number
// of jobs ahead of a waiting one, -1 if unknown.
func (o *Outlook) ETA(j job.Job, position int) time.Duration {
	switch {
	case j.State == job.Leased || j.State == job.Running:
		e := o.estimate(j.Shape, o.from.reports.Gpu(j.Run.Instance))
		switch {
		case !e.Certain():
			return -1
		case j.StartedAt == 0:
			return e.Ran
		}
		return schedule.Remaining(e.Ran, max(time.Since(o.from.queue.Clock().When(j.StartedAt)), 0))
	case j.State != job.Queued:
		return -1
	}
	if r := o.from.runs.Get(j.Key); r != nil { // it was given out meanwhile
		return o.given(r)
	}
	if end, ok := o.End(j.Key); ok {
		return end
	}
	return o.Behind(j, position)
}

// given returns when a job ends that an instance already has, perhaps behind another one.
func (o *Outlook) given(r *run.Run) time.Duration {
	j := r.Job()
	gpu := o.from.reports.Gpu(j.Run.Instance)
	e, conn := o.estimate(j.Shape, gpu), o.from.instances.Get(j.Run.Instance)
	switch {
	case !e.Certain():
		return -1
	case conn == nil:
		return e.Ran
	}
	runs := conn.Runs()
	if runs[0] == nil || runs[0] == r.Holder() {
		return o.rest(conn, r.Holder(), gpu)
	}
	return o.rest(conn, runs[0], gpu) + e.Ran
}

// Free returns how long it takes until an instance has finished what it is running; -1 if unknown,
// 0 for an idle one.
func (o *Outlook) Free(instance string) time.Duration {
	if free, known := o.free[instance]; known {
		return free
	}
	return -1
}

// foreseen reports whether the run times of everything the instance is running are known.
func (o *Outlook) foreseen(conn *instance.Link, i fleet.Instance, gpu string) bool {
	runs := conn.Runs()
	if runs[0] == nil {
		shape, _, ok := conn.Elsewhere(i) // it is a run of another hub
		return i.State != fleet.Busy || ok && o.estimate(shape, gpu).Certain()
	}
	for _, r := range runs {
		if r != nil && !o.estimate(r.Job().Shape, gpu).Certain() {
			return false
		}
	}
	return true
}
