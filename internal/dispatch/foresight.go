package dispatch

import (
	"maps"
	"time"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
)

// Ahead are the jobs that will probably begin before one that waits.
type Ahead struct {
	// Own are the prompt ids of those of the same tenant, in their order.
	Own []string
	// Others is how many of other tenants there are.
	Others int
}

// Ahead returns what will probably begin before a waiting job; false if the job is not
// among the first in line.
func (o *Outlook) Ahead(j job.Job) (a Ahead, ok bool) {
	for _, before := range o.order {
		switch {
		case before.Key == j.Key:
			return a, true
		case before.Tenant == j.Tenant:
			a.Own = append(a.Own, before.ID)
		default:
			a.Others++
		}
	}
	return Ahead{}, false
}

// Free returns in how long an instance will have ended what it runs; -1 if that cannot be
// said, 0 for one that is idle.
func (o *Outlook) Free(instance string) time.Duration {
	if free, known := o.free[instance]; known {
		return free
	}
	return -1
}

// foreseen reports whether the run times of what an instance runs are known.
func (o *Outlook) foreseen(conn *connection, i fleet.Instance, gpu string) bool {
	runs := conn.runs()
	if runs[0] == nil {
		shape, _, ok := conn.elsewhere(i) // it is a run of another hub
		return i.State != fleet.Busy || ok && certain(o.estimate(shape, gpu))
	}
	for _, r := range runs {
		if r != nil && !certain(o.estimate(r.job().Shape, gpu)) {
			return false
		}
	}
	return true
}

// starts returns in how long each of some jobs, which are the first in line, can begin; -1
// where that cannot be said. Instances whose runs are leaving are free at once.
func (o *Outlook) starts(waiting []job.Job, leaving map[string]yielding) []time.Duration {
	free := maps.Clone(o.free)
	for name := range leaving {
		free[name] = 0
	}
	starts := make([]time.Duration, len(waiting))
	for n, j := range waiting {
		var first *busySpot
		for at := range o.spots {
			s := &o.spots[at]
			if s.Can(j) && free[s.Name] >= 0 && (first == nil || free[s.Name] < free[first.Name]) {
				first = s
			}
		}
		if first == nil {
			starts[n] = -1
			continue
		}
		starts[n] = free[first.Name]
		free[first.Name] += o.estimate(j.Shape, first.gpu).Ran
	}
	return starts
}
