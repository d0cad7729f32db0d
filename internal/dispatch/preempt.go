package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/learned"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/run"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// preemption interrupts bulk runs for interactive jobs.
type preemption struct {
	fleet        *fleet.Registry
	queue        *queue.Queue
	settings     func() Settings
	paused       func() error
	access       *Access
	reports      *instance.Reports
	instances    *Instances
	rests        *rests
	durations    *learned.Durations
	line         *waitLine
	requirements *requirements
	forecasts    *Forecasts
	notices      *run.Notices
	leaving      leaving
	log          *slog.Logger
}

const (
	// makeWayPause is the shortest time between two looks at the waiting interactive jobs.
	makeWayPause = 100 * time.Millisecond
	// evictPause is the time between two interrupts of a run that is making way.
	evictPause = time.Second
	// makeWayQuiet is how long no second run makes way for the same job, so that an instance in the
	// middle of a long step has time to notice the interrupt.
	makeWayQuiet = 30 * time.Second
	// youngUnknown is how long a run of unknown length counts as one that loses little.
	youngUnknown = time.Minute
	// makeWayWindow is the least number of waiting jobs that are looked at.
	makeWayWindow = 16
)

// leaving are the bulk runs that are making way for interactive jobs. Only the loop uses it. The
// zero value is empty.
type leaving struct {
	looked  time.Time
	evicted time.Time
	runs    map[string]yielding // by instance
	// asked is until when no other run makes way for a job, by key.
	asked map[string]time.Time
}

// leaves reports whether the run of an instance is making way.
func (l *leaving) leaves(instance string) bool {
	_, leaves := l.runs[instance]
	return leaves
}

// yielding is an instance whose run may make way for an interactive job.
type yielding struct {
	schedule.Idle
	conn *instance.Link
	run  *run.Run
	ran  time.Duration
	// next is an interactive job that is already waiting at the instance; nil for none.
	next *run.Run
}

// makeWay interrupts young bulk runs for interactive jobs that would wait longer than the operator
// wants. A run is young in the first half of its time, and a job is interrupted at most once, so a
// bulk job costs at most half as much again, or a minute more. next is how long until the next look
// is due; zero if unknown.
func (p *preemption) makeWay(ctx context.Context) (next time.Duration) {
	limit := p.settings().PreemptBulk
	if limit <= 0 || p.paused() != nil {
		return 0
	}
	l, now := &p.leaving, time.Now()
	next = l.evictAgain(now)
	if wait := makeWayPause - now.Sub(l.looked); wait > 0 {
		return soonest(next, wait)
	}
	yields, infos := p.yielding(now)
	if len(yields) == 0 {
		return next
	}
	l.looked = now
	maps.DeleteFunc(l.asked, func(_ string, until time.Time) bool { return !now.Before(until) })
	waiting, err := p.interactive(ctx, yields, infos)
	if err != nil || len(waiting) == 0 {
		return next
	}
	for n, start := range p.forecasts.From(ctx, waiting...).Starts(waiting, l.leaves) {
		j := waiting[n]
		wait := p.notices.Age(j)
		if start >= 0 {
			wait += start
		}
		if start < 0 && wait < limit {
			next = soonest(next, limit-wait)
		}
		if _, asked := l.asked[j.Key]; asked || wait <= limit {
			continue
		}
		at := youngest(yields, j)
		if at < 0 {
			continue
		}
		y := yields[at]
		yields = slices.Delete(yields, at, at+1)
		may, err := p.queue.Preempt(ctx, y.run.Lease(), j.Key, makeWayQuiet)
		if errors.Is(err, queue.ErrUnavailable) {
			return soonest(next, evictPause)
		}
		l.note(j, now)
		if may && err == nil {
			p.log.Info("bulk run preempted by an interactive job", "job", j.Key, "bulk_job", y.run.Job().Key,
				"instance", y.Name, "ran_ms", y.ran.Milliseconds())
			l.add(y, now)
			next = soonest(next, evictPause)
		}
	}
	return next
}

// interactive returns the waiting interactive jobs that some instances could run, including those
// already waiting at such an instance. The instances learn what they can run.
func (p *preemption) interactive(ctx context.Context, yields []yielding, infos []*catalog.Info) (waiting []job.Job, err error) {
	for _, y := range yields {
		if y.next != nil {
			waiting = append(waiting, y.next.Job())
		}
	}
	if !p.line.interactive() {
		return waiting, nil
	}
	idle := make([]schedule.Idle, len(yields))
	for n, y := range yields {
		idle[n] = y.Idle
	}
	w, _, err := p.requirements.look(ctx, idle, infos, makeWayWindow)
	for n := range yields {
		yields[n].Idle = idle[n]
	}
	for _, j := range w.Jobs {
		if j.Band() == job.Interactive {
			waiting = append(waiting, j)
		}
	}
	return waiting, err
}

// yielding lists the instances with a bulk run that may be interrupted.
func (p *preemption) yielding(now time.Time) (list []yielding, infos []*catalog.Info) {
	for _, conn := range p.instances.Open() {
		i, known := p.fleet.Instance(conn.Name)
		info, runs := conn.Abilities(), run.Of(conn)
		r := runs[0]
		if r == nil || info == nil || !known || conn.Kind == fleet.KindOverflow || i.State != fleet.Busy || p.leaving.runs[conn.Name].run == r {
			continue
		}
		j := r.Job()
		ran, began := conn.RanFor(r.Holder(), now)
		if !began || j.Band() != job.Bulk || j.Preempted || !young(ran, p.durations.Estimate(j.Shape, p.reports.Gpu(conn.Name))) {
			continue
		}
		y := yielding{conn: conn, run: r, ran: ran}
		if runs[1] != nil && runs[1].Job().Band() == job.Interactive {
			y.next = runs[1]
		}
		y.Idle = schedule.Idle{Name: conn.Name, Loaded: conn.Models(), Tenants: p.access.reservedFor(conn.Name)}
		p.rests.keep(&y.Idle, conn, i)
		list, infos = append(list, y), append(infos, info)
	}
	return list, infos
}

// young reports whether a run loses little if it is interrupted.
func young(ran time.Duration, e schedule.Estimate) bool {
	if e.Certain() {
		return ran < e.Ran/2
	}
	return ran < youngUnknown
}

// youngest returns the instance for an interactive job whose run has the least to lose; -1 if there
// is none.
func youngest(list []yielding, j job.Job) int {
	best := -1
	for n, y := range list {
		if y.next != nil && y.next.Job().Key == j.Key {
			return n // it is waiting there, and nowhere else
		}
		if y.next == nil && y.Can(j) && (best < 0 || y.ran < list[best].ran) {
			best = n
		}
	}
	return best
}

// note remembers that a run was asked to make way for a job.
func (l *leaving) note(j job.Job, now time.Time) {
	if l.asked == nil {
		l.asked = map[string]time.Time{}
	}
	l.asked[j.Key] = now.Add(makeWayQuiet)
}

// add interrupts a run.
func (l *leaving) add(y yielding, now time.Time) {
	if l.runs == nil {
		l.runs = map[string]yielding{}
	}
	l.runs[y.Name], l.evicted = y, now
	y.evict()
}

// evictAgain interrupts the runs that have not ended yet, and returns after how long to call it
// again; zero if there are none.
func (l *leaving) evictAgain(now time.Time) (next time.Duration) {
	maps.DeleteFunc(l.runs, func(_ string, y yielding) bool { return y.conn.Running() != y.run.Holder() })
	if len(l.runs) == 0 {
		return 0
	}
	if now.Sub(l.evicted) >= evictPause {
		l.evicted = now
		for _, y := range l.runs {
			y.evict()
		}
	}
	return evictPause
}

// evict interrupts the run, and takes back what is waiting behind it unless that is the job that
// this is done for.
func (y yielding) evict() {
	runs := run.Of(y.conn)
	if runs[0] != y.run {
		return
	}
	y.run.Evict()
	if runs[1] != nil && runs[1] != y.next {
		runs[1].Evict()
	}
}

// soonest returns the shorter of two times, of which the first may be zero for none.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}
