package dispatch

import (
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// Candidate is an instance and what speaks for or against its running a job.
type Candidate struct {
	Name string
	// State is Offline also for an instance that the fleet vouches for and that
	// this hub cannot reach.
	State fleet.State
	// Can says that the instance could run the job, now or when it is free.
	Can bool
	// Why is that in plain words.
	Why string
	// Free is in how long it will have ended what it runs; -1 if that cannot be said.
	Free time.Duration
	// Reserved are the tenants the instance is reserved for if the job's is none of
	// them. Others must not learn who they are.
	Reserved []string
	// Lacks are node classes and models that the job needs and the instance
	// does not have.
	Lacks []string
}

// Candidates says of each instance of the fleet, by name, whether it could run
// a waiting job, given what it needs, and why not, and when it is free.
func (o *Outlook) Candidates(j job.Job, needs catalog.Requirements) []Candidate {
	d := o.d
	var list []Candidate
	shared, said := d.sharedGPUs(), d.settings().GPUs
	for _, g := range shared {
		d.kept.mark(g, o.at)
	}
	for _, i := range d.Fleet.Instances() {
		c := Candidate{Name: i.Name, State: i.State, Free: o.Free(i.Name)}
		if conn := d.connection(i.Name); conn == nil || !conn.isOpen() || conn.abilities() == nil {
			c.State, c.Why = fleet.Offline, strings.TrimSuffix("it is not connected: "+i.Reason, ": ")
		} else {
			c.Can, c.Why, c.Lacks = weigh(conn, i, needs, j.Key)
			if reserved := d.reservedFor(i.Name); !schedule.MayUse(reserved, j.Tenant) && len(c.Lacks) == 0 {
				c.Can, c.Why, c.Reserved = false, "it "+forOthers, reserved
			}
			if g := shared[gpuName(said, i)]; c.Can && i.State == fleet.Idle && !g.Fits(j) {
				c.Why = g.Why()
			}
			if better := d.WaitsFor(j.Key); better != "" && c.Can && i.State == fleet.Idle {
				c.Why = "it is idle, but must load the models first; " + better + " has them"
			}
		}
		list = append(list, c)
	}
	return list
}

// weigh judges a connected instance.
func weigh(conn *connection, i fleet.Instance, needs catalog.Requirements, key string) (can bool, why string, lacks []string) {
	if lacks = conn.abilities().Satisfies(needs); len(lacks) > 0 {
		const shown = 5
		why = "it lacks " + strings.Join(lacks[:min(len(lacks), shown)], ", ")
		return false, why, lacks
	}
	switch {
	case conn.refused.has(key):
		return false, "it has refused this job, or lost it", nil
	case i.Aside:
		return true, "it gets no more than single jobs: " + i.Reason, nil
	case i.State == fleet.Sick, i.State == fleet.Draining, i.State == fleet.Offline:
		return false, "it takes no jobs now: " + i.Reason, nil
	case i.State == fleet.Foreign:
		return true, "it is used by others: " + i.Reason, nil
	case i.State == fleet.Busy:
		return true, "it runs another job", nil
	}
	return true, "it is idle", nil
}
