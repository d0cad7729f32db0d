package dispatch

import (
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/catalog"
)

// Reservation keeps instances for the jobs of some tenants.
type Reservation struct {
	// Instances is the name of an instance; each * in it stands for any text.
	Instances string
	// Tenants are those who may use them; at least one.
	Tenants []string
}

// Reservations are those of all instances. An instance that several of them name takes
// the jobs of all their tenants.
type Reservations []Reservation

// For returns the tenants an instance is reserved for, sorted; nil if it is for all.
func (rs Reservations) For(instance string) (tenants []string) {
	for _, r := range rs {
		if matches(r.Instances, instance) {
			tenants = append(tenants, r.Tenants...)
		}
	}
	slices.Sort(tenants)
	return slices.Compact(tenants)
}

// matches reports whether a name is like a pattern, in which * stands for any text.
func matches(pattern, name string) bool {
	first, rest, any := strings.Cut(pattern, "*")
	name, ok := strings.CutPrefix(name, first)
	if !ok || !any {
		return ok && name == ""
	}
	parts := strings.Split(rest, "*")
	last := parts[len(parts)-1]
	for _, part := range parts[:len(parts)-1] {
		_, after, found := strings.Cut(name, part)
		if !found {
			return false
		}
		name = after
	}
	return strings.HasSuffix(name, last)
}

// forOthers says why an instance does not run a job.
const forOthers = "is reserved for other tenants"

// takes reports whether an instance that is reserved for some tenants, or for nobody if
// that is nil, takes a tenant's jobs.
func takes(reserved []string, tenant string) bool {
	return reserved == nil || slices.Contains(reserved, tenant)
}

// reservedFor returns the tenants an instance is reserved for, nil if it is for all.
func (d *Dispatcher) reservedFor(instance string) []string {
	return d.settings().Reserved.For(instance)
}

// mayUse reports whether an instance takes a tenant's jobs.
func (d *Dispatcher) mayUse(tenant, instance string) bool {
	return takes(d.reservedFor(instance), tenant)
}

// owners are tenants whose jobs some instances take. The zero value is nobody.
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

// name tells different owners apart.
func (o owners) name() string {
	tenants := slices.Clone(o.tenants)
	slices.Sort(tenants)
	return setOf(slices.Compact(tenants))
}

// Bar is what keeps a tenant's job from all instances that could run it.
type Bar int

const (
	// NotBarred says that an instance may run the job, or that none could.
	NotBarred Bar = iota
	// BarredReserved says that all are reserved for other tenants.
	BarredReserved
	// BarredSecrets says that none that is not may have the API key that the job needs.
	BarredSecrets
)

// Barred tells what keeps a tenant's job from all of some instances, given by name, that could
// run it.
func (d *Dispatcher) Barred(infos map[string]*catalog.Info, needs catalog.Requirements, tenant string) (bar Bar) {
	reserved := d.settings().Reserved
	if len(reserved) == 0 && !needs.Secrets {
		return NotBarred
	}
	classes := map[string][]byte{needs.Signature(): needs.Encode()}
	for name, info := range infos {
		why := NotBarred
		switch {
		case !takes(reserved.For(name), tenant):
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
