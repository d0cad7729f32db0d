package schedule

import (
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
)

// Idle is an instance that could take a job now.
type Idle struct {
	// Name is the instance's name in the fleet.
	Name string
	// LastClient is the client whose job ran here last: its node cache is warm.
	LastClient string
	// Loaded are the models of the last run here, sorted; none if unknown.
	Loaded []string
	// Classes are the requirement classes with waiting jobs that the instance can run.
	Classes map[string]bool
	// Refused are the keys of jobs that this instance has refused or lost.
	Refused map[string]bool
	// Tenants are those the instance is reserved for; nil if it is for everybody.
	Tenants []string
	// Rests says that it only gets single jobs that no other instance can run.
	Rests bool
	// GPU is the instance's if others use it too; else nil.
	GPU *GPU
}

// Refuse keeps a job from the instance.
func (i *Idle) Refuse(key string) {
	if i.Refused == nil { // most instances have refused nothing
		i.Refused = map[string]bool{}
	}
	i.Refused[key] = true
}

// Can reports whether the instance may take the job now.
func (i Idle) Can(j job.Job) bool { return i.able(j) && i.GPU.Fits(j) }

// able is Can without checking what else its GPU is doing.
func (i Idle) able(j job.Job) bool {
	return i.Classes[j.Class] && !i.Refused[j.Key] && MayUse(i.Tenants, j.Tenant)
}

// Warmth says which jobs may overtake others in Pick: those whose models are loaded, and those that
// take less time.
type Warmth struct {
	// Models are those that the jobs of a class load, by class.
	Models map[string][]string
	// Overtaking lets a job whose models are loaded go before one whose models are not, and a short
	// job before a long one of another tenant.
	Overtaking bool
	// Due are the keys of the jobs that must no longer be overtaken like this.
	Due map[string]bool
	// Takes is how long jobs count as running, by key: short ones go before long ones, unless it is
	// empty.
	Takes map[string]time.Duration
	// Late are the keys of the jobs that shorter ones may no longer overtake.
	Late map[string]bool
	// Soon lists busy instances with models loaded; nil if no job may wait for one of them. It is
	// called only if models must be loaded.
	Soon func() []Soon
	// Ends returns how long a job runs on an instance, and how long it takes to load its models
	// there; 0 and 0 if unknown.
	Ends func(j job.Job, instance string) (ran, load time.Duration)
	// Waited are the keys of the jobs that have waited for a busy instance long enough.
	Waited map[string]bool
}

// Placement says that a job goes to an instance, and why.
type Placement struct {
	Job      job.Job
	Instance string
	Why      string
	// Saves says that the job finds its models loaded, and that one of the jobs would have to load
	// some if nobody looked at what is loaded.
	Saves bool
}

// Picked is what Pick decided.
type Picked struct {
	Pairs []Placement
	// Passed are the keys of the jobs that were overtaken: they could have run on an instance that
	// went to a job behind them.
	Passed []string
	// Held are the jobs that wait for a busy instance although an idle one could run them.
	Held []Held
	// Kept are the names of the GPUs that get no more jobs until a waiting one has room there.
	Kept []string
}

// Pick pairs waiting jobs, best first, with idle instances. It is the one place that decides which
// job goes where.
//
// Among the instances that can run a job it prefers, in this order, the one that has the most of
// its models loaded; the one that ran this client last; one that is reserved, because the others
// are for everybody; the one that can run the fewest other classes, so that a machine with every
// model stays free for the jobs that only it can run; and the one whose own models will be missed
// least.
//
// Another caller's job may overtake if it takes less time or, if the first one's models must be
// loaded, if it needs exactly what the instance has. A job whose models every idle instance would
// have to load waits for a busy one that has them, if that one will finish it sooner. Apart from
// that, a job whose favourite instance is busy goes to another.
func Pick(waiting []job.Job, idle []Idle, w Warmth) (picked Picked) {
	p := newPicking(idle, w)
	left, moved := ShortFirst(waiting, w)
	for next := 0; next < len(left) && len(p.free) > 0; {
		n, why := p.best(left[next])
		if n < 0 {
			p.keep(left[next])
			next++
			continue
		}
		chosen := next
		if ahead := p.overtaker(left[next:], n); ahead > 0 {
			chosen, why = next+ahead, "its models are loaded"
		} else if held := p.waitsFor(left[next], n, left[next+1:]); held != nil {
			picked.Held = append(picked.Held, *held)
			next++
			continue
		} else if moved[left[next].Key] {
			why = "takes less time than others before it"
		}
		picked.Pairs = append(picked.Pairs, Placement{Job: left[chosen], Instance: p.free[n].Name, Why: why, Saves: p.saves(left[next], left[chosen], n)})
		p.take(n, left[chosen])
		left = slices.Delete(left, chosen, chosen+1)
	}
	picked.Kept = p.kept
	picked.Passed = overtakenBy(picked.Pairs, waiting, idle)
	return picked
}

// overtakenBy lists the jobs that got nothing although an instance that could have run them went to
// one behind them.
func overtakenBy(pairs []Placement, waiting []job.Job, idle []Idle) (passed []string) {
	instances := make(map[string]Idle, len(idle))
	for _, i := range idle {
		instances[i.Name] = i
	}
	given := make(map[string]Idle, len(pairs))
	for _, pair := range pairs {
		given[pair.Job.Key] = instances[pair.Instance]
	}
	var taken []Idle // the instances that went to the jobs behind
	for _, j := range slices.Backward(waiting) {
		if i, has := given[j.Key]; has {
			taken = append(taken, i)
		} else if slices.ContainsFunc(taken, func(i Idle) bool { return i.able(j) }) {
			passed = append(passed, j.Key)
		}
	}
	slices.Reverse(passed)
	return passed
}
