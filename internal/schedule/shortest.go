package schedule

import (
	"math"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
)

// shorter is how many times as long a job must take to be overtaken by a shorter one: estimates are
// no better than that.
const shorter = 2

// worthwhile is the shortest a job may take and still be worth overtaking.
const worthwhile = time.Second

// ShortFirst returns waiting jobs with short ones before long ones, as far as they may overtake
// them, and which of them have overtaken one. Equals keep their order.
func ShortFirst(waiting []job.Job, w Warmth) (order []job.Job, moved map[string]bool) {
	if len(w.Takes) == 0 {
		return slices.Clone(waiting), nil
	}
	moved = map[string]bool{}
	counts, places := make([]time.Duration, len(waiting)), make([]int, 0, len(waiting))
	for n, j := range waiting {
		takes := w.Takes[j.Key] // or as long as the longest one that only others may overtake
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

// Takes returns how long jobs count as running, by key, given how long each will run; nil if that
// makes no difference. A job that may not overtake a long one counts as long itself: otherwise it
// would hold up all the short ones behind it, and it cannot begin before the long one anyway.
func Takes(jobs []job.Job, ran func(shape string) time.Duration) map[string]time.Duration {
	if len(jobs) < 2 {
		return nil
	}
	least, most := time.Duration(math.MaxInt64), time.Duration(0)
	each := make([]time.Duration, len(jobs))
	for n, j := range jobs {
		each[n] = ran(j.Shape)
		least, most = min(least, each[n]), max(most, each[n])
	}
	if most < max(shorter*least, worthwhile) {
		return nil
	}
	return lifted(jobs, each)
}

// lifted makes jobs count as long as the ones before them that they may not overtake.
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

// ShortBehind returns how many of the first waiting jobs to read, given their shapes, to include
// the short ones behind long ones; 0 if there are none.
func ShortBehind(shapes []string, ran func(shape string) time.Duration) (n int) {
	most := time.Duration(0)
	for at, shape := range shapes {
		takes := ran(shape)
		if most >= max(shorter*takes, worthwhile) {
			n = at + 1
		}
		most = max(most, takes)
	}
	return n
}

// mayOvertake reports whether a job may go before one that is due earlier. A caller's own jobs keep
// their order, and so do priorities and `front` within a tenant, and bands.
func mayOvertake(j, before job.Job) bool {
	if j.Band().Below(before.Band()) {
		return false
	}
	if j.Tenant != before.Tenant {
		return true
	}
	return j.Caller != before.Caller && j.Priority >= before.Priority && !before.InFront()
}
