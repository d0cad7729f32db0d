package dispatch

import (
	"cmp"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// SecretsTo are the names of agents, and of instances without one, that get the API keys of
// prompts; each * in one stands for any text. Without any these are the operator's own: static
// instances, and agents that have joined with the fleet's key and own their names. Machines
// that a token admits get none then, neither workers that fetch their jobs nor those behind
// tunnels: whoever has a token can claim any class, and would be given the keys of everybody
// who uses it.
type SecretsTo []string

// Has reports whether an instance gets API keys.
func (s SecretsTo) Has(i fleet.Instance) bool {
	if len(s) == 0 {
		return i.Kind != fleet.KindWorker && !i.Tunnelled()
	}
	return slices.ContainsFunc(s, func(name string) bool { return Names(name, i) })
}

// Names reports whether a name, in which each * stands for any text, is that of an instance's
// agent, or its own if it has none. An agent calls its instances as it likes, so that says
// nothing of whose they are.
func Names(name string, i fleet.Instance) bool {
	return schedule.Matches(name, cmp.Or(i.Agent, i.Name))
}

// maySecrets reports whether an instance gets API keys, by its name. Of one that only another
// hub has the other hub decides: unknown is the answer.
func (d *Dispatcher) maySecrets(name string, unknown bool) bool {
	i, known := d.Fleet.Instance(name)
	switch {
	case known:
		return d.settings().SecretsTo.Has(i)
	case len(d.settings().SecretsTo) > 0 || strings.HasPrefix(name, fleet.WorkerScheme+":"):
		return d.settings().SecretsTo.Has(fleet.Instance{Name: name, Kind: fleet.KindWorker})
	}
	return unknown
}

// WithSecrets notes in what some instances can run, by name, whether they may have API keys.
func (d *Dispatcher) WithSecrets(infos map[string]*catalog.Info) []*catalog.Info {
	list := make([]*catalog.Info, 0, len(infos))
	for name, info := range infos {
		list = append(list, info.WithSecrets(d.maySecrets(name, false)))
	}
	return list
}
