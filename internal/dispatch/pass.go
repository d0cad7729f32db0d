package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/retry"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// pass is one look at queue and fleet that gives jobs to idle instances.
type pass struct {
	placer *placer
	// passed are jobs that were tried in vain: they cannot be claimed. taken are instances that were:
	// another hub has them. All get their turn in the next pass.
	passed, taken map[string]bool
	// capped are tenants that may not begin another run now.
	capped map[string]bool
	// ahead says that jobs are given to instances that are still running one.
	ahead bool
	// held are jobs that are waiting for a busy instance.
	held map[string]bool
	// left is how many classes still have waiting jobs after the last claim.
	left *int
	// claim gives a job to an instance, and soon lists the busy ones: pass.give and placer.soon,
	// except in a simulation.
	claim func(pass, context.Context, schedule.Placement) error
	soon  func() []schedule.Soon
}

// fillAhead gives jobs that no idle instance can run to instances that are still running one.
func (p pass) fillAhead(ctx context.Context, look bool, l looked) (looked, error) {
	if !look {
		return l, nil
	}
	busy, infos := p.without(p.placer.openings.busy())
	if len(busy) == 0 {
		return l, nil
	}
	for n := range busy {
		for key := range p.held {
			busy[n].Refuse(key)
		}
	}
	p.ahead = true
	return p.fill(ctx, busy, infos)
}

// looked is the outcome of one look at the queue.
type looked struct {
	// nothing says that nothing is waiting.
	nothing bool
	// again says that jobs were given out, and that the next look may find more.
	again bool
	// next is how long until a job that must not run yet may; zero if unknown.
	next time.Duration
}

// idle lists the instances that could take a job now, without those that were tried in vain.
func (p pass) idle() (idle []schedule.Idle, infos []*catalog.Info) {
	return p.without(p.placer.openings.Idle())
}

// without leaves out what was tried in vain.
func (p pass) without(all []schedule.Idle, allInfos []*catalog.Info) (idle []schedule.Idle, infos []*catalog.Info) {
	if len(p.passed) == 0 && len(p.taken) == 0 {
		return all, allInfos
	}
	for n, i := range all {
		if p.taken[i.Name] {
			continue
		}
		for key := range p.passed {
			i.Refuse(key)
		}
		idle, infos = append(idle, i), append(infos, allInfos[n])
	}
	return idle, infos
}

// fill reads the waiting jobs, best first, until one of them fits an idle instance, and gives out
// what fits. A job that fits nowhere does not hide the ones behind it.
func (p pass) fill(ctx context.Context, idle []schedule.Idle, infos []*catalog.Info) (l looked, err error) {
	d := p.placer
	if first, known := d.firstInLine(ctx); known {
		d.judged.able(idle, infos, d.requirements.met)
		given, err := p.offer(ctx, queue.Window{Jobs: []job.Job{first}, More: true, Classes: 1}, idle, &l)
		if given > 0 || err != nil {
			return l, err
		}
	}
	w, look, err := d.requirements.look(ctx, idle, infos, 0)
	if err != nil {
		return looked{}, err
	}
	n := look.n
	d.requirements.met.trim(w.Classes)
	for skip := n; ; skip, n = skip+n, 4*n {
		given, err := p.offer(ctx, w, idle, &l)
		if given > 0 || err != nil || !w.More {
			return l, err
		}
		if !retry.Sleep(ctx, time.Duration(n)*readPause) {
			return looked{}, ctx.Err()
		}
		if w, err = d.requirements.window(ctx, idle, infos, &look.wanted, skip, 4*n); err != nil {
			return looked{}, err
		}
	}
}

// offer gives jobs of a window to instances that they fit, and returns how many it has tried to
// give out.
func (p pass) offer(ctx context.Context, w queue.Window, idle []schedule.Idle, l *looked) (given int, err error) {
	d := p.placer
	if w.Next > 0 && (l.next == 0 || w.Next < l.next) {
		l.next = w.Next
	}
	d.blame.avoidFailed(w.Jobs, idle, d.requirements.met)
	d.blame.avoidForParts(w.Jobs, idle)
	d.overflow.avoidPaid(w.Jobs, idle)
	now := time.Now()
	picked := p.pick(ctx, w, idle, now)
	d.order.overtaken.Note(picked.Passed, now)
	d.kept.add(picked.Kept, idle, now)
	if until := d.holds.note(picked.Held, now); until > 0 && (l.next == 0 || until < l.next) {
		l.next = until
	}
	for _, h := range picked.Held {
		p.held[h.Job.Key] = true
	}
	*p.left = w.Classes
	refused := len(p.passed) + len(p.taken)
	for _, pair := range picked.Pairs {
		if err := p.claim(p, ctx, pair); err != nil {
			*l = looked{}
			return 0, err
		}
	}
	l.nothing = *p.left == 0
	// If all of the window went, and it was all there is, the next look would find nothing.
	all := !w.More && len(picked.Pairs) == len(w.Jobs) && len(p.passed)+len(p.taken) == refused
	l.again = len(picked.Pairs) > 0 && !all
	return len(picked.Pairs), nil
}

// pick is Pick with what this hub knows. Jobs wait for busy instances only if that hides no job
// behind the window.
func (p pass) pick(ctx context.Context, w queue.Window, idle []schedule.Idle, now time.Time) schedule.Picked {
	warmth := p.placer.order.warmth(ctx, w.Jobs, idle, now)
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

// give claims a job for an instance and starts its run.
func (p pass) give(ctx context.Context, pair schedule.Placement) error {
	d, key := p.placer.claimer, pair.Job.Key
	if p.capped[pair.Job.Tenant] {
		p.passed[key] = true
		return nil
	}
	conn := d.instances.Get(pair.Instance)
	if conn == nil {
		p.taken[pair.Instance] = true
		return nil
	}
	r := d.runner.New(conn, pair.Job)
	if !r.Attach(p.ahead, d.requirements.met[pair.Job.Class]) {
		p.taken[pair.Instance] = true
		return nil
	}
	request := queue.ClaimRequest{
		Key: key, Tenant: pair.Job.Tenant, Instance: conn.Name, Hub: d.hub, Upstream: conn.UpstreamID(pair.Job), SID: conn.ClientID(),
		Ahead: p.ahead, After: conn.After(), Cost: d.durations.Cost(pair.Job.Shape, conn.Name), Why: pair.Why,
	}
	claimed, left, err := d.queue.ClaimCounting(ctx, request)
	switch {
	case err == nil:
		*p.left = left
		d.begin(r, claimed, pair, left == 0)
		return nil
	case errors.Is(err, queue.ErrUnavailable):
		d.runner.ClaimAgain(r, request, func(claimed job.Job) { d.begin(r, claimed, pair, false) })
		return err
	}
	r.Detach()
	switch {
	case ctx.Err() != nil:
		return err
	case errors.Is(err, queue.ErrTaken):
		p.taken[pair.Instance] = true
	case errors.Is(err, queue.ErrCapped): // the next look leaves it out
		p.capped[pair.Job.Tenant], p.passed[key] = true, true
	case errors.Is(err, queue.ErrNotQueued), errors.Is(err, queue.ErrNotFound):
		p.passed[key] = true
	default: // something is wrong with this one; the others go on
		d.log.Error("cannot claim a job", "job", key, "error", err)
		p.passed[key] = true
		d.rests.NotHere(key)
	}
	return nil
}
