package dispatch

import (
	"strings"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// Access says which instances tenants may use, and which of them may have API keys.
type Access struct {
	fleet    *fleet.Registry
	settings func() Settings
	judged   *judgements
}

// reservedFor returns the tenants an instance is reserved for, nil if it takes everybody's jobs.
func (a *Access) reservedFor(instance string) []string {
	return a.settings().Reserved.For(instance)
}

// mayUse reports whether an instance takes a tenant's jobs.
func (a *Access) mayUse(tenant, instance string) bool {
	return schedule.MayUse(a.reservedFor(instance), tenant)
}

// maySecrets reports whether the named instance gets API keys. If only another hub has the
// instance, that hub decides, and the answer is unknown.
func (a *Access) maySecrets(name string, unknown bool) bool {
	i, known := a.fleet.Instance(name)
	switch {
	case known:
		return a.settings().givesSecrets(i)
	case len(a.settings().SecretsTo) > 0 || strings.HasPrefix(name, fleet.WorkerScheme+":"):
		return a.settings().SecretsTo.Has(fleet.Instance{Name: name, Kind: fleet.KindWorker})
	}
	return unknown
}

// WithSecrets notes, for the given instances by name, whether they may have API keys.
func (a *Access) WithSecrets(infos map[string]*catalog.Info) []*catalog.Info {
	list := make([]*catalog.Info, 0, len(infos))
	for name, info := range infos {
		list = append(list, info.WithSecrets(a.maySecrets(name, false)))
	}
	return list
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
func (a *Access) Barred(infos map[string]*catalog.Info, needs catalog.Requirements, tenant string) (bar Bar) {
	reserved := a.settings().Reserved
	if len(reserved) == 0 && !needs.Secrets {
		return NotBarred
	}
	classes := map[string][]byte{needs.Signature(): needs.Encode()}
	for name, info := range infos {
		why := NotBarred
		switch {
		case !schedule.MayUse(reserved.For(name), tenant):
			why = BarredReserved
		case needs.Secrets && !a.maySecrets(name, false):
			why = BarredSecrets
		}
		if (why == NotBarred || why > bar) && len(a.judged.can(info.WithSecrets(true), classes)) > 0 {
			if why == NotBarred {
				return NotBarred
			}
			bar = why
		}
	}
	return bar
}
