package dispatch

import (
	"slices"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// forOthers says why an instance does not run a job.
const forOthers = "is reserved for other tenants"

// reservedFor returns the tenants an instance is reserved for, nil if it takes everybody's jobs.
func (d *Dispatcher) reservedFor(instance string) []string {
	return d.settings().Reserved.For(instance)
}

// mayUse reports whether an instance takes a tenant's jobs.
func (d *Dispatcher) mayUse(tenant, instance string) bool {
	return schedule.MayUse(d.reservedFor(instance), tenant)
}

// owners are the tenants whose jobs some instances take. The zero value is nobody.
type owners struct {
	all     bool
	tenants []string
}

// add adds the tenants that may use an instance, given its reservation.
func (o *owners) add(reserved []string) {
	o.all = o.all || reserved == nil
	o.tenants = append(o.tenants, reserved...)
}

func (o owners) has(tenant string) bool { return o.all || slices.Contains(o.tenants, tenant) }

// name is the same for equal sets of owners only.
func (o owners) name() string {
	tenants := slices.Clone(o.tenants)
	slices.Sort(tenants)
	return schedule.SetOf(slices.Compact(tenants))
}

// Bar is what keeps a tenant's job from all instances that could run it.
type Bar int

const (
	// NotBarred says that an instance may run the job, or that none could anyway.
	NotBarred Bar = iota
	// BarredReserved says that all are reserved for other tenants.
	BarredReserved
	// BarredSecrets says that those not reserved may not have the API key that the job needs.
	BarredSecrets
)

// Barred tells what keeps a tenant's job from all the given instances, by name, that could run it.
func (d *Dispatcher) Barred(infos map[string]*catalog.Info, needs catalog.Requirements, tenant string) (bar Bar) {
	reserved := d.settings().Reserved
	if len(reserved) == 0 && !needs.Secrets {
		return NotBarred
	}
	classes := map[string][]byte{needs.Signature(): needs.Encode()}
	for name, info := range infos {
		why := NotBarred
		switch {
		case !schedule.MayUse(reserved.For(name), tenant):
			why = BarredReserved
		case needs.Secrets && !d.maySecrets(name, false):
			why = BarredSecrets
		}
		if (why == NotBarred || why > bar) && len(d.judged.can(info.WithSecrets(true), classes)) > 0 {
			if why == NotBarred {
				return NotBarred
			}
			bar = why
		}
	}
	return bar
}
