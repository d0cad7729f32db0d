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

// Idle lists the instances that could take a job now.
func (o *Openings) Idle() ([]schedule.Idle, []*catalog.Info) {
	var (
		idle  []schedule.Idle
		infos []*catalog.Info
		gpus  []string
	)
	if o.paused() != nil {
		return nil, nil
	}
	settings := o.settings()
	for _, conn := range o.instances.Sets.Free.List() {
		at, known := o.fleet.Instance(conn.Name)
		if !known || o.instances.Get(conn.Name) != conn || !conn.Usable(at) || o.isLeft(conn) {
			continue
		}
		if i, info, ok := conn.Idle(); ok {
			i.Refused = o.rests.at(conn, at)
			i.Tenants = settings.Reserved.For(conn.Name)
			i.Rests = o.health.Rests(conn.Name)
			idle, infos, gpus = append(idle, i), append(infos, info), append(gpus, instance.GPUName(settings.GPUs, at))
		}
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
			i.Refused, i.Tenants = o.rests.at(conn, at), o.access.reservedFor(conn.Name)
			idle, infos = append(idle, i), append(infos, info)
		}
	}
	return idle, infos
}

// HasIdle reports whether an instance that could run a tenant's job is idle now, so that it will
// likely run the job next.
func (o *Openings) HasIdle(needs catalog.Requirements, tenant string) bool {
	idle, infos := o.Idle()
	for n, info := range infos {
		if schedule.MayUse(idle[n].Tenants, tenant) && len(info.Satisfies(needs)) == 0 {
			return true
		}
	}
	return false
}

// isLeft reports whether an idle instance is left to another hub for now.
func (o *Openings) isLeft(conn *instance.Link) bool {
	left, first, wait := conn.Precedence.IsLeft(time.Now())
	if first {
		o.signal.freedAfter(wait)
	}
	return left
}
