package dispatch

import (
	"slices"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// avoidFailed keeps jobs away from idle instances where they have failed, as long as another one
// could run them, even if only later: a broken instance is always the idle one, and would keep
// getting them until they have no attempts left. classes are the requirements of the jobs' classes.
func (d *Dispatcher) avoidFailed(jobs []job.Job, idle []schedule.Idle, classes map[string][]byte) {
	for _, j := range jobs {
		if len(j.FailedAt) == 0 || !d.untried(j, classes[j.Class]) {
			continue
		}
		for _, i := range idle {
			if slices.Contains(j.FailedAt, i.Name) {
				i.Refused[j.Key] = true
			}
		}
	}
}

// untried reports whether there is an instance where a job with these requirements has not failed
// and that could run it, now or once it is free.
func (d *Dispatcher) untried(j job.Job, requires []byte) bool {
	if requires == nil {
		return false
	}
	needs := map[string][]byte{j.Class: requires}
	for _, conn := range d.connected() {
		if slices.Contains(j.FailedAt, conn.name) || !d.works(conn.name) || !d.mayUse(j.Tenant, conn.name) || conn.refused.itself(j.Key) {
			continue
		}
		if info := conn.abilities(); info != nil && d.judged.can(info, needs)[j.Class] {
			return true
		}
	}
	return false
}

// works reports whether an instance takes jobs of this hub, now or once it is free.
func (d *Dispatcher) works(name string) bool {
	i, known := d.Fleet.Instance(name)
	return known && (i.State == fleet.Idle || i.State == fleet.Busy)
}

// trusted reports whether an instance works, as far as is known.
func (d *Dispatcher) trusted(name string) bool { return d.works(name) && !d.health.doubts(name) }
