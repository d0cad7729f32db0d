package dispatch

import (
	"slices"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/run"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// Blame decides whether an instance or a job is at fault when runs fail, and keeps jobs away from
// instances where they have failed.
type Blame struct {
	*run.Health
	fleet     *fleet.Registry
	access    *Access
	reports   *instance.Reports
	instances *Instances
	runs      *run.Runs
	judged    *judgements
}

// standIns returns what the instances that take over an instance's jobs while it rests can run.
func (b *Blame) standIns(name string) (infos []*catalog.Info) {
	reserved := b.access.reservedFor(name)
	for _, other := range b.instances.Open() {
		if other.Name == name || !b.Trusted(other.Name) {
			continue
		}
		if its := b.access.reservedFor(other.Name); its != nil && (reserved == nil || slices.ContainsFunc(reserved, func(tenant string) bool { return !schedule.MayUse(its, tenant) })) {
			continue
		}
		if info := other.Abilities(); info != nil {
			infos = append(infos, info)
		}
	}
	return infos
}

// avoidFailed keeps jobs away from idle instances where they have failed, as long as another one
// could run them, even if only later: a broken instance is always the idle one, and would keep
// getting them until they have no attempts left. classes are the requirements of the jobs' classes.
func (b *Blame) avoidFailed(jobs []job.Job, idle []schedule.Idle, classes map[string][]byte) {
	for _, j := range jobs {
		if len(j.FailedAt) == 0 || !b.untried(j, classes[j.Class]) {
			continue
		}
		for n := range idle {
			if slices.Contains(j.FailedAt, idle[n].Name) {
				idle[n].Refuse(j.Key)
			}
		}
	}
}

// untried reports whether there is an instance where a job with these requirements has not failed
// and that could run it, now or once it is free.
func (b *Blame) untried(j job.Job, requires []byte) bool {
	if requires == nil {
		return false
	}
	needs := map[string][]byte{j.Class: requires}
	for _, conn := range b.instances.Open() {
		if slices.Contains(j.FailedAt, conn.Name) || !b.reports.Works(conn.Name) || !b.access.mayUse(j.Tenant, conn.Name) || conn.Refused.Itself(j.Key) {
			continue
		}
		if info := conn.Abilities(); info != nil && b.judged.leave(info, b.judged.can(info, needs), needs)[j.Class] {
			return true
		}
	}
	return false
}

// avoidForParts keeps parts away from instances that may not make them.
func (b *Blame) avoidForParts(jobs []job.Job, idle []schedule.Idle) {
	for _, j := range jobs {
		if j.Parent == "" {
			continue
		}
		for n := range idle {
			if conn := b.instances.Get(idle[n].Name); conn == nil || !b.runs.TakesPart(j.Parent, conn) {
				idle[n].Refuse(j.Key)
			}
		}
	}
}
