package dispatch

import (
	"slices"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// otherHubs says what the instances could run that other hubs have and this one does not.
type otherHubs struct {
	roster    Roster
	access    *Access
	instances *Instances
}

// AnotherHubHas implements [run.Elsewhere].
func (o *otherHubs) AnotherHubHas(needs catalog.Requirements, tenant string) bool {
	return o.owners(needs).has(tenant)
}

// owners returns whose jobs the instances of other hubs could run.
func (o *otherHubs) owners(needs catalog.Requirements) (all owners) {
	if o.roster == nil {
		return all
	}
	for name, info := range o.roster.Elsewhere() {
		info = catalog.ForAPIOnly(info.WithSecrets(o.access.maySecrets(name, true)), o.access.settings().takesAPIOnly(name))
		if conn := o.instances.Get(name); (conn == nil || !conn.IsOpen()) && len(info.Satisfies(needs)) == 0 {
			all.add(o.access.reservedFor(name))
		}
	}
	return all
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
