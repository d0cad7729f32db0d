package dispatch

import (
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// Candidate is an instance, with what speaks for or against it running a job.
type Candidate struct {
	Name string
	// State is Offline even for an instance that the fleet vouches for if this hub cannot reach it.
	State fleet.State
	// Can says that the instance could run the job, now or once it is free.
	Can bool
	// Why explains Can in plain words.
	Why string
	// Cause is more of why, for those who may see everything; empty for nothing.
	Cause string
	// Free is how long until it has finished what it is running; -1 if unknown.
	Free time.Duration
	// Reserved are the tenants the instance is reserved for, if the job's is not one of them. Other
	// tenants must not learn who they are.
	Reserved []string
	// Lacks are the node classes and models that the job needs and the instance does not have.
	Lacks []string
}

// Candidates says for each instance of the fleet, by name, whether it could run a waiting job with
// these needs, why not, and when it will be free.
func (o *Outlook) Candidates(j job.Job, needs catalog.Requirements) []Candidate {
	d := o.from
	var list []Candidate
	shared, said := d.sharing.gpus(), d.settings().GPUs
	for _, g := range shared {
		d.kept.mark(g, o.at)
	}
	for _, i := range d.fleet.Instances() {
		c := Candidate{Name: i.Name, State: i.State, Free: o.Free(i.Name)}
		if i.Kind == fleet.KindOverflow {
			if d.overflow.judge(o, j, needs, &c) {
				list = append(list, c)
			}
			continue
		}
		if conn := d.instances.Get(i.Name); conn == nil || !conn.IsOpen() || conn.Abilities() == nil {
			c.State, c.Why = fleet.Offline, strings.TrimSuffix("it is not connected: "+i.Reason, ": ")
		} else {
			c.Can, c.Why, c.Lacks = weigh(conn, i, needs, j.Key)
			if c.Can && d.judged.leaves(conn.Abilities(), needs) {
				c.Can, c.Why = false, "it is left to prompts that need a GPU"
			}
			if reserved := d.access.reservedFor(i.Name); !schedule.MayUse(reserved, j.Tenant) && len(c.Lacks) == 0 {
				c.Can, c.Why, c.Reserved = false, "it "+forOthers, reserved
			}
			if g := shared[instance.GPUName(said, i)]; c.Can && i.State == fleet.Idle && !g.Fits(j) {
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
func weigh(conn *instance.Link, i fleet.Instance, needs catalog.Requirements, key string) (can bool, why string, lacks []string) {
	if lacks = conn.Abilities().Satisfies(needs); len(lacks) > 0 {
		const shown = 5
		why = "it lacks " + strings.Join(lacks[:min(len(lacks), shown)], ", ")
		return false, why, lacks
	}
	switch {
	case conn.Refused.Has(key):
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
