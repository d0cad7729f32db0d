package schedule

import "github.com/comfyhub/comfyhub/internal/job"

// GPU is a GPU that several instances use, as one look at the fleet finds it. While one of them
// runs a job, another gets one only if the memory is enough for both, going by what has been
// learned about their needs. A job that is alone there always fits.
//
// The rule is a preference: two hubs that give out jobs at the same moment do not see each other's.
// One of the runs may then find too little memory, and is repeated.
type GPU struct {
	Name string
	// Total is its memory without what other programs hold, and Taken what the runs there need as
	// far as is known, in bytes.
	Total, Taken int64
	// Busy says that something is running there.
	Busy bool
	// Kept says that it gets no more jobs until it is free: a job that has been overtaken for long
	// enough is waiting for that.
	Kept bool
	// Need returns how many bytes a job of a shape needs there, 0 if unknown.
	Need func(shape string) int64
}

// Fits reports whether there is enough memory for a job beside what is running there. If nothing is
// known about either, it fits. A nil GPU is one that a single instance uses.
func (g *GPU) Fits(j job.Job) bool {
	return g == nil || !g.Kept && (!g.Busy || within(g.Total, g.Taken, g.Need(j.Shape)))
}

// within reports whether a need fits into what is left of a GPU's memory.
func within(total, taken, need int64) bool { return need == 0 || taken+need <= total }

// Take notes that a job begins there.
func (g *GPU) Take(j job.Job) {
	if g != nil {
		g.Busy = true
		g.Taken += g.Need(j.Shape)
	}
}

// Why explains why an idle instance does not run a job that does not fit.
func (g *GPU) Why() string {
	if g.Kept {
		return "its GPU is kept free for a job that has waited for its memory"
	}
	return "its GPU has too little memory left beside the job that another instance runs there"
}

// ownGPUs lets a decision count what it gives out without changing what it was given.
func ownGPUs(free []spot) {
	own := map[*GPU]*GPU{}
	for n := range free {
		g := free[n].GPU
		if g == nil {
			continue
		}
		if own[g] == nil {
			c := *g
			own[g] = &c
		}
		free[n].GPU = own[g]
	}
}

// keep keeps a GPU free of further jobs for one that finds too little memory on the GPUs of all
// idle instances and that nobody may overtake any more. Otherwise small jobs could keep it waiting
// for ever.
func (p *picking) keep(j job.Job) {
	if p.Overtaking && !p.Due[j.Key] {
		return
	}
	for _, i := range p.free {
		if i.able(j) && i.GPU != nil && !i.GPU.Kept {
			i.GPU.Kept = true
			p.kept = append(p.kept, i.GPU.Name)
			return
		}
	}
}
