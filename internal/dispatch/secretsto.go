package dispatch

import (
	"cmp"
	"slices"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// SecretsTo are the names of agents, and of instances without one, that get the API keys of
// prompts; each * in a name stands for any text. If empty, only the operator's own get them: static
// instances, and agents that have joined with the fleet's key and own their names. Then machines
// admitted with a token get none, and neither do workers that fetch their jobs, nor instances
// behind tunnels: whoever has a token can claim any class, and would be given the keys of everybody
// who uses it.
type SecretsTo []string

// Has reports whether an instance gets API keys.
func (s SecretsTo) Has(i fleet.Instance) bool {
	if len(s) == 0 {
		return i.Kind != fleet.KindWorker && !i.Tunnelled()
	}
	return slices.ContainsFunc(s, func(name string) bool { return Names(name, i) })
}

// givesSecrets reports whether an instance gets API keys.
func (s Settings) givesSecrets(i fleet.Instance) bool {
	if i.Kind == fleet.KindOverflow {
		return slices.Contains(s.SecretsElsewhere, i.Name)
	}
	return s.SecretsTo.Has(i)
}

// Names reports whether a name, in which each * stands for any text, is that of an instance's
// agent, or its own if it has none. An agent names its instances as it likes, so those names do not
// say whose they are.
func Names(name string, i fleet.Instance) bool {
	return schedule.Matches(name, cmp.Or(i.Agent, i.Name))
}
