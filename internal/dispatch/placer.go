package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/run"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// placer gives waiting jobs to instances.
type placer struct {
	fleet        *fleet.Registry
	settings     func() Settings
	access       *Access
	instances    *Instances
	openings     *Openings
	blame        *Blame
	requirements *requirements
	order        *order
	forecasts    *Forecasts
	holds        *holds
	kept         *keptGPUs
	judged       *judgements
	claimer      *claimer
	signal       *signal
	overflow     *overflow
	// nothing is the count of news at which a look found no waiting job; 0 if there may be some.
	nothing uint64
}

// firstInLine returns the first of the waiting jobs, if it is known without a look at the queue
// because an otherwise idle fleet has just got it. Its class is known by then. Claiming it fails if
// it is gone or must not run now.
func (pl *placer) firstInLine(ctx context.Context) (j job.Job, known bool) {
	a := pl.signal.arrived.Swap(nil)
	if a == nil || a.news != pl.signal.news.Load() {
		return job.Job{}, false
	}
	if pl.requirements.met[a.job.Class] == nil {
		if any, err := pl.requirements.meet(ctx, []string{a.job.Class}); err != nil || !any {
			return job.Job{}, false
		}
	}
	return a.job, true
}

// look gives jobs to idle instances until there is nothing left to give. next is how long until a
// job that must not run yet may; zero if unknown.
func (pl *placer) look(ctx context.Context) (next time.Duration, err error) {
	p := pass{placer: pl, passed: map[string]bool{}, taken: map[string]bool{}, capped: map[string]bool{}, held: map[string]bool{}, left: new(int), claim: pass.give, soon: pl.soon}
	for {
		news := pl.signal.news.Load()
		// Otherwise an instance was freed since the last look, and nothing else happened.
		look := pl.nothing == 0 || pl.nothing != news
		var l looked
		if !look {
			pl.openings.await()
		} else if idle, infos := p.idle(); len(idle) > 0 {
			pl.nothing = 0
			l, err = p.fill(ctx, idle, infos)
			if err != nil {
				return l.next, err
			}
			if l.nothing { // also true if everything was given out
				pl.nothing, look = news, false
			}
		}
		if !l.again {
			pl.takeBack(p)
			if l, err = p.fillAhead(ctx, look, l); err != nil {
				return l.next, err
			}
			if l.nothing {
				pl.nothing = news
			}
			if !l.again {
				return l.next, nil
			}
		}
	}
}

// takeBack takes back jobs that are waiting at an instance while an idle one could run them, and
// those at an instance that no longer takes jobs.
func (pl *placer) takeBack(p pass) {
	var waiting []job.Job
	runs := map[string]*run.Run{}
	needs := map[string][]byte{}
	for _, conn := range pl.instances.Sets.Holding.List() {
		r := run.Of(conn)[1]
		if r == nil {
			continue
		}
		i, known := pl.fleet.Instance(conn.Name)
		gone := !known || i.State == fleet.Draining || i.State == fleet.Sick || !pl.access.mayUse(r.Job().Tenant, conn.Name)
		if gone || pl.openings.paused() != nil || !pl.settings().Ahead {
			r.AskBack()
			continue
		}
		if r.Needs() != nil { // a run that was taken over stays where it is
			j := r.Job()
			waiting, runs[j.Key], needs[j.Class] = append(waiting, j), r, r.Needs()
		}
	}
	if len(waiting) == 0 {
		return
	}
	idle, infos := p.idle()
	if len(idle) == 0 {
		return
	}
	slices.SortFunc(waiting, func(a, b job.Job) int { return int(a.CreatedAt - b.CreatedAt) })
	pl.judged.able(idle, infos, needs)
	pl.blame.avoidFailed(waiting, idle, needs)
	pl.blame.avoidForParts(waiting, idle)
	for _, pair := range schedule.Pick(waiting, idle, schedule.Warmth{}).Pairs {
		runs[pair.Job.Key].AskBack()
	}
}

// soon lists the busy instances for which it is known when they will be free.
func (pl *placer) soon() []schedule.Soon { return pl.forecasts.soon(pl.requirements.met) }
