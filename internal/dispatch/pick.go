package dispatch

import (
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
)

// Idle is an instance that could take a job now.
type Idle struct {
	// Name is the instance's name in the fleet.
	Name string
	// LastClient is the client whose job ran here last: its node cache is
	// warm.
	LastClient string
	// Loaded are the models of the last run here, sorted; none if they are unknown.
	Loaded []string
	// Classes are the requirement classes that the instance can run, of those
	// that have waiting jobs.
	Classes map[string]bool
	// Refused are the keys of jobs that this instance has refused or lost.
	Refused map[string]bool
	// Tenants are those the instance is reserved for; nil if it is for all.
	Tenants []string
	// StandIns are what the instances can run that take its jobs while it rests; none if it
	// does not rest.
	StandIns []*catalog.Info
	// GPU is the instance's if others use it, too; else nil.
	GPU *sharedGPU
}

// can reports whether the instance may take the job now.
func (i Idle) can(j job.Job) bool { return i.able(j) && i.GPU.fits(j) }

// able is can without a look at what else its GPU does.
func (i Idle) able(j job.Job) bool {
	return i.Classes[j.Class] && !i.Refused[j.Key] && takes(i.Tenants, j.Tenant)
}

// Warmth says which jobs may overtake others in Pick: those that find their models loaded, and those that take
// less time.
type Warmth struct {
	// Models are those that the jobs of a class load, by class.
	Models map[string][]string
	// Overtaking lets a job whose models are loaded go before one whose are not, and a
	// short job before a long one of another tenant.
	Overtaking bool
	// Due are the keys of the jobs that must not be overtaken like this any more.
	Due map[string]bool
	// Takes is how long jobs count as running, by key: short ones go before long ones. They
	// do not if it is empty.
	Takes map[string]time.Duration
	// Late are the keys of the jobs that no shorter one may overtake any more.
	Late map[string]bool
	// Soon lists busy instances with models loaded; nil if no job may wait for one of them.
	// It is asked only where models must be loaded.
	Soon func() []Soon
	// Ends returns how long a job runs on an instance, and how long it takes to load its
	// models there; 0 and 0 if that is not known.
	Ends func(j job.Job, instance string) (ran, load time.Duration)
	// Waited are the keys of the jobs that have waited for a busy instance long enough.
	Waited map[string]bool
}

// Pair says that a job goes to an instance, and why.
type Pair struct {
	Job      job.Job
	Instance string
	Why      string
}

// Picked is what Pick has decided.
type Picked struct {
	Pairs []Pair
	// Passed are the keys of the jobs that were overtaken: they could have run on an
	// instance that went to a job behind them.
	Passed []string
	// Held are the jobs that wait for a busy instance although an idle one could run them.
	Held []Held
	// Kept are the names of the GPUs that get no further job until one that waits has room
	// there.
	Kept []string
}

// Pick pairs waiting jobs, best first, with idle instances. It is the one
// place that decides which job goes where.
//
// Among the instances that can run a job it prefers, in this order, the one that has
// the most of its models loaded; the one that ran this client last; one that is reserved,
// because the others are for everybody; the one that can run the fewest other classes, so
// that a machine with every model stays free for the jobs that only it can run; and the one
// whose own models are missed least.
//
// Another caller's job may overtake that takes less time, or, where the models of the
// first one must be loaded, one that needs just what the instance has. A job whose models
// all idle instances would have to load waits for a busy one that has them, if that one
// will have finished it sooner. Apart from that a job whose favourite instance is busy goes
// to another.
func Pick(waiting []job.Job, idle []Idle, w Warmth) (picked Picked) {
	p := newPicking(idle, w)
	left, moved := shortFirst(waiting, w)
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
		picked.Pairs = append(picked.Pairs, Pair{Job: left[chosen], Instance: p.free[n].Name, Why: why})
		p.take(n, left[chosen])
		left = slices.Delete(left, chosen, chosen+1)
	}
	picked.Kept = p.kept
	picked.Passed = overtakenBy(picked.Pairs, waiting, idle)
	return picked
}

// overtakenBy lists the jobs that got nothing although an instance that they could have
// run on went to one behind them.
func overtakenBy(pairs []Pair, waiting []job.Job, idle []Idle) (passed []string) {
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

// picking is the state of one Pick.
type picking struct {
	Warmth
	free []spot
	// shared is how many models of a class each free instance has loaded, by class.
	shared map[string][]int
	// copies counts the instances that have the same models loaded.
	copies map[string]int
	// soon are the busy instances, once they were asked for.
	soon []Soon
	// kept are the names of GPUs, see keep.
	kept []string
}

// spot is a free instance. set names the models that it has loaded, "" for none.
type spot struct {
	Idle
	set string
}

func newPicking(idle []Idle, w Warmth) *picking {
	p := &picking{Warmth: w, free: make([]spot, len(idle)), shared: map[string][]int{}, copies: map[string]int{}}
	for n, i := range idle {
		p.free[n] = spot{i, setOf(i.Loaded)}
		p.copies[p.free[n].set]++
	}
	ownGPUs(p.free)
	return p
}

// best returns the free instance for a job, or -1, and why.
func (p *picking) best(j job.Job) (best int, why string) {
	best = -1
	loaded := p.loaded(j.Class)
	for n, i := range p.free {
		if i.can(j) && (best < 0 || p.better(j, loaded, n, best)) {
			best = n
		}
	}
	switch {
	case best < 0:
		return best, ""
	case loaded[best] > 0:
		return best, "its models are loaded"
	case j.Client != "" && p.free[best].LastClient == j.Client:
		return best, "ran this client last"
	}
	return best, "idle and able"
}

// better reports whether instance a suits the job better than b. With hundreds of both
// it is asked often, so it looks no further than it must.
func (p *picking) better(j job.Job, loaded []int, a, b int) bool {
	if loaded[a] != loaded[b] {
		return loaded[a] > loaded[b]
	}
	x, y := &p.free[a], &p.free[b]
	if own := j.Client != "" && x.LastClient == j.Client; own != (j.Client != "" && y.LastClient == j.Client) {
		return own
	}
	if reserved := x.Tenants != nil; reserved != (y.Tenants != nil) {
		return reserved
	}
	if len(x.Classes) != len(y.Classes) {
		return len(x.Classes) < len(y.Classes)
	}
	return x.set != y.set && p.missed(x) < p.missed(y)
}

// missed says by how much the models are missed that an instance drops for others: those
// that many have are missed less.
func (p *picking) missed(i *spot) int {
	if i.set == "" {
		return 0
	}
	return len(p.free) + 1 - p.copies[i.set]
}

// loaded returns how many models of a class each free instance has.
func (p *picking) loaded(class string) []int {
	counts, known := p.shared[class]
	if !known {
		counts = make([]int, len(p.free))
		for n, i := range p.free {
			counts[n] = common(p.Models[class], i.Loaded)
		}
		p.shared[class] = counts
	}
	return counts
}

// overtaker returns the place, in a list of waiting jobs, of the one that an instance
// should run before the first; 0 if that is the first itself.
func (p *picking) overtaker(waiting []job.Job, n int) int {
	i := p.free[n]
	warm := func(j job.Job) bool {
		return i.can(j) && len(p.Models[j.Class]) > 0 && p.loaded(j.Class)[n] == len(p.Models[j.Class])
	}
	if !p.Overtaking || len(i.Loaded) == 0 || len(p.Models[waiting[0].Class]) == 0 {
		return 0
	}
	for place, j := range waiting {
		if warm(j) {
			for _, before := range waiting[:place] {
				if i.can(before) && (!mayOvertake(j, before) || p.muchLonger(j, before)) {
					return 0
				}
			}
			return place
		}
		if i.can(j) && p.Due[j.Key] {
			return 0
		}
	}
	return 0
}

// mayOvertake reports whether a job may go before one that is due earlier. Callers' own
// jobs keep their order, and so do priorities and `front` within a tenant, and bands.
func mayOvertake(j, before job.Job) bool {
	if j.Band().Below(before.Band()) {
		return false
	}
	if j.Tenant != before.Tenant {
		return true
	}
	return j.Caller != before.Caller && j.Priority >= before.Priority && !before.InFront()
}

// take removes an instance from the free ones, which gets a job.
func (p *picking) take(n int, j job.Job) {
	p.free[n].GPU.take(j)
	p.copies[p.free[n].set]--
	p.free = slices.Delete(p.free, n, n+1)
	for class, counts := range p.shared {
		p.shared[class] = slices.Delete(counts, n, n+1)
	}
}

// common counts the entries that two sorted lists share.
func common(a, b []string) (n int) {
	for len(a) > 0 && len(b) > 0 {
		switch c := strings.Compare(a[0], b[0]); {
		case c < 0:
			a = a[1:]
		case c > 0:
			b = b[1:]
		default:
			n, a, b = n+1, a[1:], b[1:]
		}
	}
	return n
}
