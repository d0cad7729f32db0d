package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/run"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// Overflow are places elsewhere that cost money by the second. Jobs go there for which the fleet has
// no time.
type Overflow interface {
	// Places returns them.
	Places() []Place
	// Has returns the place that has a run of a job already, empty if none has. barred says that the
	// job must go to no place.
	Has(job string) (place string, barred bool)
	// Empty reports whether Has knows of no job.
	Empty() bool
	// Refuses says why a waiting job must not go to a place; empty if it may.
	Refuses(ctx context.Context, place string, j job.Job, needs catalog.Requirements) string
}

// Place is where jobs overflow to.
type Place struct {
	Name string
	// Slots are the names of its instances.
	Slots []string
	// After is the wait beyond which jobs go there.
	After time.Duration
	// Closed says why it takes no jobs now; empty if it does.
	Closed string
}

const (
	// overflowEvery is the shortest time between two looks at what overflows.
	overflowEvery = 500 * time.Millisecond
	// overflowLine bounds the waiting jobs that are looked at.
	overflowLine = 256
	// overflowGrace is how long a job waits at most before it goes to a place because no instance can
	// run it: agents restart.
	overflowGrace = 10 * time.Second
	// overflowSoon is the wait for an instance that is no reason to pay.
	overflowSoon = 10 * time.Second
)

// overflow gives waiting jobs to places elsewhere. Only the loop uses what changes.
type overflow struct {
	remote       Overflow
	fleet        *fleet.Registry
	queue        *queue.Queue
	paused       func() error
	instances    *Instances
	placer       *placer
	requirements *requirements
	forecasts    *Forecasts
	notices      *run.Notices
	access       *Access
	looked       time.Time
}

// avoidPaid keeps jobs from idle instances that have a run at a place already: it is paid for.
func (o *overflow) avoidPaid(jobs []job.Job, idle []schedule.Idle) {
	if o == nil || o.remote == nil || o.remote.Empty() {
		return
	}
	for _, j := range jobs {
		if place, _ := o.remote.Has(j.Key); place != "" && o.serves(place) {
			for n := range idle {
				idle[n].Refuse(j.Key)
			}
		}
	}
}

// serves reports whether a place is configured.
func (o *overflow) serves(place string) bool {
	return slices.ContainsFunc(o.remote.Places(), func(p Place) bool { return p.Name == place })
}

// look gives jobs to places that have room. next is how long until the next look is due; zero if
// nobody knows.
func (o *overflow) look(ctx context.Context) (next time.Duration) {
	if o.remote == nil || o.paused() != nil {
		return 0
	}
	places := o.open()
	if len(places) == 0 {
		return 0
	}
	if wait := overflowEvery - time.Since(o.looked); wait > 0 {
		return wait
	}
	o.looked = time.Now()
	p := pass{placer: o.placer, passed: map[string]bool{}, taken: map[string]bool{}, capped: map[string]bool{}, held: map[string]bool{}, left: new(int)}
	for len(places) > 0 {
		w, err := o.queue.Window(ctx, queue.Wanted{}, 0, overflowLine)
		if err != nil || len(w.Jobs) == 0 {
			return 0
		}
		if unknown := o.requirements.met.unknown(w.Jobs); len(unknown) > 0 {
			if _, err := o.requirements.meet(ctx, unknown); err != nil {
				return 0
			}
		}
		pair, due := o.pick(ctx, p, places, w.Jobs)
		if pair.Instance == "" {
			return due
		}
		if p.give(ctx, pair) != nil {
			return 0
		}
		p.passed[pair.Instance] = true
		places = slices.DeleteFunc(places, func(one place) bool { return p.passed[one.slot] })
	}
	return 0
}

// place is one with an idle slot.
type place struct {
	Place

	slot string
}

// open returns the idle slots.
func (o *overflow) open() (list []place) {
	free := o.instances.Sets.Apart.List()
	if len(free) == 0 {
		return nil
	}
	for _, one := range o.remote.Places() {
		for _, conn := range free {
			i, known := o.fleet.Instance(conn.Name)
			if _, _, idle := conn.Idle(); idle && known && slices.Contains(one.Slots, conn.Name) && o.instances.Get(conn.Name) == conn && conn.Usable(i) {
				list = append(list, place{one, conn.Name})
			}
		}
	}
	return list
}

// pick returns the first job that overflows now, and how long until one may.
func (o *overflow) pick(ctx context.Context, p pass, places []place, jobs []job.Job) (pair schedule.Placement, next time.Duration) {
	outlook := o.forecasts.From(ctx, jobs...)
	for _, j := range jobs {
		needs, err := catalog.DecodeRequirements(o.requirements.met[j.Class])
		if err != nil || p.passed[j.Key] || p.capped[j.Tenant] {
			continue
		}
		has, barred := o.remote.Has(j.Key)
		for n, one := range places {
			if barred || has != "" && has != one.Name || n > 0 && places[n-1].Name == one.Name {
				continue
			}
			if has == "" && one.Closed != "" {
				continue
			}
			why, wait := o.due(outlook, j, one.After)
			if has != "" {
				why, wait = "its run is there already", 0
			}
			if wait > 0 {
				next = soonest(next, max(wait, overflowEvery))
				continue
			}
			if has != "" || o.refuses(ctx, one.Place, j, needs) == "" {
				return schedule.Placement{Job: j, Instance: one.slot, Why: why}, 0
			}
		}
	}
	return pair, cmp.Or(next, 2*overflowEvery)
}

// refuses says why a job must not go to a place; empty if it may.
func (o *overflow) refuses(ctx context.Context, one Place, j job.Job, needs catalog.Requirements) string {
	switch {
	case len(j.Parts) > 0 || j.Parent != "":
		return "it is a part of a batch"
	case len(one.Slots) > 0 && !o.access.mayUse(j.Tenant, one.Slots[0]):
		return "it " + forOthers
	}
	return o.remote.Refuses(ctx, one.Name, j, needs)
}

// due returns how long until a waiting job overflows, not above zero if it does now, and why.
func (o *overflow) due(outlook *Outlook, j job.Job, after time.Duration) (why string, wait time.Duration) {
	waited := o.notices.Age(j)
	begin, able := outlook.Begin(j.Key)
	switch {
	case !able && outlook.inLine(j.Key):
		return "no server can run it", min(after, overflowGrace) - waited
	case begin > after:
		return fmt.Sprintf("it would wait for %s more", begin.Round(time.Second)), 0
	case able && begin >= 0 && begin <= overflowSoon:
		return "it has waited too long", 2*after - waited
	}
	return "it has waited too long", after - waited
}

// inLine reports whether a job is one of those that a forecast looks at.
func (o *Outlook) inLine(key string) bool {
	_, in := o.End(key)
	return in
}

// judge says when a waiting job would overflow to the place of an instance. It is false for all slots
// of a place but the first.
func (o *overflow) judge(outlook *Outlook, j job.Job, needs catalog.Requirements, c *Candidate) bool {
	if o == nil || o.remote == nil {
		return false
	}
	for _, one := range o.remote.Places() {
		if len(one.Slots) == 0 || one.Slots[0] != c.Name {
			continue
		}
		has, barred := o.remote.Has(j.Key)
		_, wait := o.due(outlook, j, one.After)
		c.Can = false
		switch refused := o.refuses(context.Background(), one, j, needs); {
		case barred:
			c.Why = "it goes to no endpoint any more: see the hub's log"
		case has != "" && has != one.Name:
			c.Why = "it has a run at " + has
		case refused != "":
			c.Why = refused
		case one.Closed != "":
			c.Why, c.Cause = "it takes no jobs now", one.Closed
		case wait > 0:
			c.Can, c.Why = true, fmt.Sprintf("would overflow in %s", max(wait.Round(time.Second), time.Second))
		default:
			c.Can, c.Why = true, "would overflow now, if a slot is free"
		}
		return true
	}
	return false
}
