package run

import (
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/schedule"
	"github.com/comfyhub/comfyhub/internal/split"
)

// shares says which outputs each instance makes, by where the time of such runs has gone; none if one
// had better make all.
func (r dividing) shares(b split.Branches, takes schedule.Estimate, asked partsWish) []split.Outputs {
	shape, ok := schedule.DecodeStructure(r.Job().Shape)
	_, spent, _ := r.d.Durations.Spending.Of(shape, r.d.Reports.Gpu(r.conn.Name))
	var sum time.Duration
	for _, took := range spent {
		sum += took
	}
	if !ok || sum <= 0 || !r.conn.Capability().Targets() {
		return nil
	}
	for class, took := range spent { // those runs had other sizes and steps
		spent[class] = time.Duration(took.Seconds() / sum.Seconds() * float64(takes.Ran))
	}
	loads := r.helpers(takes, demandsOfOutputs(b))
	return b.Divide(spent, loads[:min(len(loads), asked.most-1)], asked.least)
}

// demands are what an instance must be like to make a part, apart from what the job needs.
type demands struct {
	// own are the classes that must be ComfyUI's own there.
	own []string
	// targets says that the instance must know partial_execution_targets.
	targets bool
}

func demandsOfOutputs(b split.Branches) demands { return demands{own: b.Classes(), targets: true} }

// demandsOfBatch are those of the parts of a batch.
func (r dividing) demandsOfBatch() demands {
	own := []string{split.Inserted}
	needs, _ := partNeeds(r.body.Requires) // an error stops the division elsewhere
	for _, class := range needs.Classes {
		if split.Relies(class) {
			own = append(own, class)
		}
	}
	return demands{own: own}
}

// metBy reports whether an instance is like that. There may be no demands, because nothing is known of
// the parts.
func (d *demands) metBy(conn *instance.Link) bool {
	info := conn.Abilities()
	if d == nil || info == nil || d.targets && !conn.Capability().Targets() {
		return false
	}
	return !slices.ContainsFunc(d.own, func(class string) bool { return !info.Core(class) })
}

// helpers returns what each idle instance that would make a part as this run's would needs first to
// load its models, the least first.
func (r dividing) helpers(takes schedule.Estimate, d demands) (loads []time.Duration) {
	needs, err := partNeeds(r.body.Requires)
	if err != nil || needs.Unchecked || needs.Secrets {
		return nil
	}
	j, gpu := r.Job(), r.d.Reports.Gpu(r.conn.Name)
	idle, infos := r.d.Elsewhere.Idle()
	for k, i := range idle {
		var load time.Duration
		if slices.ContainsFunc(r.models, func(model string) bool { return !slices.Contains(i.Loaded, model) }) {
			load = takes.Load
		}
		if i.Rests || i.GPU != nil || !schedule.MayUse(i.Tenants, j.Tenant) || r.d.Reports.Gpu(i.Name) != gpu || 2*load > takes.Ran {
			continue
		}
		if conn := r.d.Links.Get(i.Name); conn != nil && d.metBy(conn) && len(infos[k].Satisfies(needs)) == 0 {
			loads = append(loads, load)
		}
	}
	slices.Sort(loads)
	return loads
}
