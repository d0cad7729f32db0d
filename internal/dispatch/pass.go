package dispatch

import (
	"context"
	"maps"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/retry"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// pass is one look at queue and fleet that gives jobs to idle instances.
type pass struct {
	d *Dispatcher
	// passed are instances and jobs that were tried in vain: another hub has the instance, or the
	// job cannot be claimed. They get their turn in the next pass.
	passed map[string]bool
	// capped are tenants that may not begin another run now.
	capped map[string]bool
	// ahead says that jobs are given to instances that are still running one.
	ahead bool
	// held are jobs that are waiting for a busy instance.
	held map[string]bool
	// left is how many classes still have waiting jobs after the last claim.
	left *int
	// claim gives a job to an instance, and soon lists the busy ones: pass.give and
	// Dispatcher.soon, except in a simulation.
	claim func(pass, context.Context, schedule.Placement) error
	soon  func() []schedule.Soon
}

// pass gives jobs to idle instances until there is nothing left to give. next is how long until a
// job that must not run yet may; zero if unknown.
func (d *Dispatcher) pass(ctx context.Context) (next time.Duration, err error) {
	p := pass{d: d, passed: map[string]bool{}, capped: map[string]bool{}, held: map[string]bool{}, left: new(int), claim: pass.give, soon: d.soon}
	for {
		news := d.news.Load()
		// Otherwise an instance was freed since the last look, and nothing else happened.
		look := d.nothing == 0 || d.nothing != news
		idle, infos := p.idle()
		var l looked
		if look && len(idle) > 0 {
			d.nothing = 0
			l, err = p.fill(ctx, idle, infos)
			if err != nil {
				return l.next, err
			}
			if l.nothing { // also true if everything was given out
				d.nothing, look = news, false
			}
		}
		if !l.again {
			d.takeBack(idle, infos)
			if l, err = p.fillAhead(ctx, look, l); err != nil {
				return l.next, err
			}
			if l.nothing {
				d.nothing = news
			}
			if !l.again {
				return l.next, nil
			}
		}
	}
}

// fillAhead gives jobs that no idle instance can run to instances that are still running one.
func (p pass) fillAhead(ctx context.Context, look bool, l looked) (looked, error) {
	if !look {
		return l, nil
	}
	busy, infos := p.without(p.d.busy())
	if len(busy) == 0 {
		return l, nil
	}
	for _, i := range busy {
		maps.Copy(i.Refused, p.held)
	}
	p.ahead = true
	return p.fill(ctx, busy, infos)
}

// looked is the outcome of one look at the queue.
type looked struct {
	// nothing says that nothing is waiting.
	nothing bool
	// again says that jobs were given out: the next look may find more.
	again bool
	// next is how long until a job that must not run yet may; zero if unknown.
	next time.Duration
}

// idle lists the instances that could take a job now, without those that were tried in vain.
func (p pass) idle() (idle []schedule.Idle, infos []*catalog.Info) { return p.without(p.d.idle()) }

// without leaves out the instances that were tried in vain.
func (p pass) without(all []schedule.Idle, allInfos []*catalog.Info) (idle []schedule.Idle, infos []*catalog.Info) {
	for n, i := range all {
		if p.passed[i.Name] {
			continue
		}
		for key := range p.passed {
			i.Refused[key] = true
		}
		idle, infos = append(idle, i), append(infos, allInfos[n])
	}
	return idle, infos
}

// fill reads the waiting jobs, best first, until one of them fits an idle instance, and gives out
// what fits. A job that fits nowhere does not hide the ones behind it.
func (p pass) fill(ctx context.Context, idle []schedule.Idle, infos []*catalog.Info) (l looked, err error) {
	d := p.d
	if first, known := d.firstInLine(ctx); known {
		d.judged.able(idle, infos, d.classes)
		given, err := p.offer(ctx, queue.Window{Jobs: []job.Job{first}, More: true, Classes: 1}, idle, &l)
		if given > 0 || err != nil {
			return l, err
		}
	}
	w, look, err := d.look(ctx, idle, infos, 0)
	if err != nil {
		return looked{}, err
	}
	n := look.n
	d.classes.trim(w.Classes)
	for skip := n; ; skip, n = skip+n, 4*n {
		given, err := p.offer(ctx, w, idle, &l)
		if given > 0 || err != nil || !w.More {
			return l, err
		}
		if !retry.Sleep(ctx, time.Duration(n)*readPause) {
			return looked{}, ctx.Err()
		}
		if w, err = d.window(ctx, idle, infos, &look.wanted, skip, 4*n); err != nil {
			return looked{}, err
		}
	}
}

// offer gives jobs of a window to instances that they fit, and returns how many it has tried to
// give out.
func (p pass) offer(ctx context.Context, w queue.Window, idle []schedule.Idle, l *looked) (given int, err error) {
	d := p.d
	if w.Next > 0 && (l.next == 0 || w.Next < l.next) {
		l.next = w.Next
	}
	d.avoidFailed(w.Jobs, idle, d.classes)
	d.avoidForParts(w.Jobs, idle, d.classes)
	now := time.Now()
	picked := p.pick(ctx, w, idle, now)
	d.overtaken.Note(picked.Passed, now)
	d.kept.add(picked.Kept, idle, now)
	if until := d.holds.note(picked.Held, now); until > 0 && (l.next == 0 || until < l.next) {
		l.next = until
	}
	for _, h := range picked.Held {
		p.held[h.Job.Key] = true
	}
	*p.left = w.Classes
	for _, pair := range picked.Pairs {
		if err := p.claim(p, ctx, pair); err != nil {
			*l = looked{}
			return 0, err
		}
	}
	l.nothing = *p.left == 0
	l.again = len(picked.Pairs) > 0
	return len(picked.Pairs), nil
}

// pick is Pick with what this hub knows. Jobs wait for busy instances only if that hides no job
// behind the window.
func (p pass) pick(ctx context.Context, w queue.Window, idle []schedule.Idle, now time.Time) schedule.Picked {
	warmth := p.d.warmthOf(ctx, w.Jobs, idle, now)
	if warmth.Overtaking && !p.ahead {
		warmth.Soon = p.soon
	}
	picked := schedule.Pick(w.Jobs, idle, warmth)
	if len(picked.Held) > 0 && len(picked.Pairs) == 0 && w.More {
		warmth.Soon = nil
		picked = schedule.Pick(w.Jobs, idle, warmth)
	}
	return picked
}

// readPause is the pause per waiting job that was read in vain. There are many of them only while
// something is wrong, and then Redis has other work to do.
const readPause = 50 * time.Microsecond

// windowFor returns how many jobs to look at first: one per instance, plus as many as they have
// refused.
func windowFor(idle []schedule.Idle) int {
	const enough = 100
	n := 0
	for _, i := range idle {
		n += len(i.Refused)
	}
	return len(idle) + min(n, enough)
}

// paused returns why no job may be given out now, or nil. Whatever is running goes on.
func (d *Dispatcher) paused() error {
	if d.Paused == nil {
		return nil
	}
	return d.Paused()
}

// idle lists the instances that could take a job now.
func (d *Dispatcher) idle() ([]schedule.Idle, []*catalog.Info) {
	var (
		idle  []schedule.Idle
		infos []*catalog.Info
		gpus  []string
		needy = d.memory.needy()
	)
	if d.paused() != nil {
		return nil, nil
	}
	settings := d.settings()
	for _, conn := range d.free.list() {
		instance, known := d.Fleet.Instance(conn.name)
		if !known || d.connection(conn.name) != conn || !conn.usable(instance) || d.isLeft(conn) {
			continue
		}
		if i, info, ok := conn.idle(); ok {
			d.refused.add(i.Refused)
			d.avoidSmall(needy, instance, i.Refused)
			i.Tenants = settings.Reserved.For(conn.name)
			i.Rests = d.health.rests(conn.name)
			idle, infos, gpus = append(idle, i), append(infos, info), append(gpus, gpuName(settings.GPUs, instance))
		}
	}
	d.shareGPUs(idle, gpus)
	return idle, infos
}

// isIdle reports whether an instance can take a job now.
func (d *Dispatcher) isIdle(conn *connection) bool {
	i, known := d.Fleet.Instance(conn.name)
	if !known || !conn.usable(i) {
		return false
	}
	_, _, ok := conn.idle()
	return ok
}
