package dispatch

import (
	"math"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
)

// shorter is how many times as long a job must take to be overtaken by one that takes
// less: estimates are no better than that.
const shorter = 2

// worthwhile is how long a job takes at least that is worth overtaking.
const worthwhile = time.Second

// maxBehind bounds the further jobs that are read because short ones are among them.
const maxBehind = 64

// shortFirst returns waiting jobs with short ones before long ones, as far as they may
// overtake these, and which of them have overtaken one. Equals keep their order.
func shortFirst(waiting []job.Job, w Warmth) (order []job.Job, moved map[string]bool) {
	if len(w.Takes) == 0 {
		return slices.Clone(waiting), nil
	}
	moved = map[string]bool{}
	counts, places := make([]time.Duration, len(waiting)), make([]int, 0, len(waiting))
	for n, j := range waiting {
		takes := w.Takes[j.Key] // or as long as the longest that only others may overtake
		for before, c := range counts[:n] {
			if b := waiting[before]; c > takes && !w.Late[b.Key] && !w.mayOvertake(j, b) {
				takes = c
			}
		}
		counts[n] = takes
		at := len(places)
		for at > 0 && !w.Late[waiting[places[at-1]].Key] && counts[places[at-1]] >= max(shorter*takes, worthwhile) {
			at--
		}
		if at < len(places) {
			moved[j.Key] = true
		}
		places = slices.Insert(places, at, n)
	}
	for _, n := range places {
		order = append(order, waiting[n])
	}
	return order, moved
}

// mayOvertake reports whether a job may overtake a longer one, unless that one is late.
func (w Warmth) mayOvertake(j, before job.Job) bool {
	if j.Tenant != before.Tenant && w.Due[before.Key] {
		return false
	}
	if j.Tenant != before.Tenant && !w.Overtaking {
		return false
	}
	return mayOvertake(j, before)
}

// muchLonger reports whether a job takes much longer than another one.
func (w Warmth) muchLonger(j, other job.Job) bool {
	return w.Takes[j.Key] >= shorter*max(w.Takes[other.Key], 1)
}

// takes returns how long jobs count as running, by key; nil if that makes no difference.
// A job that may not overtake a long one counts as long itself: it would hold up all
// short ones behind it else, and it cannot begin before the long one anyway.
func (d *Dispatcher) takes(jobs []job.Job, idle []Idle) map[string]time.Duration {
	if d.settings().ShortFirst <= 0 || len(jobs) < 2 || len(idle) == 0 {
		return nil
	}
	least, most := time.Duration(math.MaxInt64), time.Duration(0)
	each, ran := make([]time.Duration, len(jobs)), d.runTimes(idle)
	for n, j := range jobs {
		each[n] = ran(j.Shape)
		least, most = min(least, each[n]), max(most, each[n])
	}
	if most < max(shorter*least, worthwhile) {
		return nil
	}
	return lifted(jobs, each)
}

// lifted makes jobs count as long as those before them that they may not overtake.
func lifted(jobs []job.Job, each []time.Duration) map[string]time.Duration {
	takes := make(map[string]time.Duration, len(jobs))
	for n, j := range jobs {
		for before, long := range each[:n] {
			if long > each[n] && !mayOvertake(j, jobs[before]) {
				each[n] = long
			}
		}
		takes[j.Key] = each[n]
	}
	return takes
}

// runTimes returns what tells how long jobs of a shape run on the first of some instances.
func (d *Dispatcher) runTimes(idle []Idle) func(shape string) time.Duration {
	gpu, known := d.gpuOf(idle[0].Name), map[string]time.Duration{}
	return func(shape string) time.Duration {
		ran, ok := known[shape]
		if !ok {
			ran = d.estimate(shape, gpu).Ran
			known[shape] = ran
		}
		return ran
	}
}

// late returns those of the jobs that were overtaken for as long as they run themselves,
// or for as long as any may be.
func (o overtaken) late(jobs []job.Job, takes map[string]time.Duration, bound time.Duration, now time.Time) map[string]bool {
	late := map[string]bool{}
	for _, j := range jobs {
		if since, passed := o[j.Key]; passed && now.Sub(since) >= min(takes[j.Key], bound) {
			late[j.Key] = true
		}
	}
	return late
}

// shortBehind returns how many of the waiting jobs to read so that the short ones behind
// long ones are among them; 0 if none is, as far as this hub knows the line.
func (d *Dispatcher) shortBehind(idle []Idle) (n int) {
	if d.settings().ShortFirst <= 0 || len(idle) == 0 {
		return 0
	}
	ran, most := d.runTimes(idle), time.Duration(0)
	for at, shape := range d.line.shapes(len(idle) + maxBehind) {
		takes := ran(shape)
		if most >= max(shorter*takes, worthwhile) {
			n = at + 1
		}
		most = max(most, takes)
	}
	return n
}
