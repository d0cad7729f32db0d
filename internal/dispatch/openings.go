package dispatch

import (
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/run"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// Openings lists the instances that could take a job.
type Openings struct {
	fleet     *fleet.Registry
	settings  func() Settings
	paused    func() error
	access    *Access
	reports   *instance.Reports
	instances *Instances
	health    *run.Health
	sharing   *sharing
	rests     *rests
	signal    *signal
}

// opening is an instance that could take a job now.
type opening struct {
	*instance.Link
	at   fleet.Instance
	idle schedule.Idle
	info *catalog.Info
}

// each yields the instances that could take a job now.
func (o *Openings) each(yield func(opening) bool) {
	if o.paused() != nil {
		return
	}
	for _, conn := range o.instances.Sets.Free.List() {
		at, known := o.fleet.Instance(conn.Name)
		if !known || o.instances.Get(conn.Name) != conn || !conn.Usable(at) || o.isLeft(conn) {
			continue
		}
		if i, info, ok := conn.Idle(); ok && !yield(opening{conn, at, i, info}) {
			return
		}
	}
}

// Idle lists the instances that could take a job now.
func (o *Openings) Idle() (idle []schedule.Idle, infos []*catalog.Info) {
	var gpus []string
	settings := o.settings()
	for one := range o.each {
		i := one.idle
		o.rests.keep(&i, one.Link, one.at)
		i.Tenants = settings.Reserved.For(one.Name)
		i.Rests = o.health.Rests(one.Name)
		idle, infos, gpus = append(idle, i), append(infos, one.info), append(gpus, instance.GPUName(settings.GPUs, one.at))
	}
	o.sharing.fill(idle, gpus)
	return idle, infos
}

// busy lists the instances that could take a job behind their run.
func (o *Openings) busy() (idle []schedule.Idle, infos []*catalog.Info) {
	if !o.settings().Ahead || o.paused() != nil {
		return nil, nil
	}
	for _, conn := range o.instances.Sets.Next.List() {
		at, known := o.fleet.Instance(conn.Name)
		if !known || o.instances.Get(conn.Name) != conn || at.State != fleet.Busy || o.reports.SharesGPU(at) {
			continue
		}
		if i, info, ok := conn.Next(); ok {
			o.rests.keep(&i, conn, at)
			i.Tenants = o.access.reservedFor(conn.Name)
			idle, infos = append(idle, i), append(infos, info)
		}
	}
	return idle, infos
}

// HasIdle reports whether an instance that could run a tenant's job is idle now, so that it will
// likely run the job next.
func (o *Openings) HasIdle(needs catalog.Requirements, tenant string) bool {
	reserved := o.settings().Reserved
	unable := map[catalog.Profile]bool{}
	for one := range o.each {
		if unable[one.info.Profile()] || !schedule.MayUse(reserved.For(one.Name), tenant) {
			continue
		}
		if len(one.info.Satisfies(needs)) == 0 {
			return true
		}
		unable[one.info.Profile()] = true
	}
	return false
}

// await notes which instances have become idle that are left to other hubs, so that they are not left
// to them for longer than that takes when the next job arrives.
func (o *Openings) await() {
	for _, conn := range o.instances.Sets.Free.List() {
		if !conn.Unseen() {
			continue
		}
		if at, known := o.fleet.Instance(conn.Name); known && conn.Usable(at) {
			o.isLeft(conn)
		}
	}
}

// isLeft reports whether an idle instance is left to another hub for now.
func (o *Openings) isLeft(conn *instance.Link) bool {
	left, first, wait := conn.Precedence.IsLeft(time.Now())
	if first {
		o.signal.freedAfter(wait)
	}
	return left
}
