package dispatch

import (
	"maps"
	"slices"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// takesAPIOnly reports whether an instance takes only prompts whose work a paid service does.
func (s Settings) takesAPIOnly(name string) bool {
	return slices.ContainsFunc(s.APIOnly, func(pattern string) bool { return schedule.Matches(pattern, name) })
}

// forAPI returns what the instances can run that take only prompts whose work a paid service does.
// One that has lately refused a prompt, and those that are not fit or for some tenants only, do not
// count: others must run what they cannot.
func (b *Blame) forAPI() (infos []*catalog.Info) {
	if len(b.access.settings().APIOnly) == 0 {
		return nil
	}
	for _, conn := range b.instances.Open() {
		info := conn.Abilities()
		if !catalog.TakesAPIOnly(info) || !b.Trusted(conn.Name) || b.access.reservedFor(conn.Name) != nil {
			continue
		}
		i, known := b.fleet.Instance(conn.Name)
		if known && !conn.Refused.Any() && (i.State == fleet.Idle || i.State == fleet.Busy) {
			infos = append(infos, info)
		}
	}
	return infos
}

// leave takes from what an instance can run what is left to those of forAPI.
func (js *judgements) leave(info *catalog.Info, able map[string]bool, classes map[string][]byte) map[string]bool {
	if js.forAPI == nil || catalog.TakesAPIOnly(info) || len(able) == 0 {
		return able
	}
	infos := js.forAPI()
	if len(infos) == 0 {
		return able
	}
	left := js.none(infos, classes)
	able = maps.Clone(able)
	maps.DeleteFunc(able, func(class string, _ bool) bool { return left[class] == nil })
	return able
}

// leaves reports whether what an instance could run is left to those of forAPI.
func (js *judgements) leaves(info *catalog.Info, needs catalog.Requirements) bool {
	return js.forAPI != nil && !catalog.TakesAPIOnly(info) && slices.ContainsFunc(js.forAPI(), func(other *catalog.Info) bool { return len(other.Satisfies(needs)) == 0 })
}
