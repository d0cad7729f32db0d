package schedule

import (
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/job"
)

// picking is the state of one Pick.
type picking struct {
	Warmth
	free []spot
	// shared is how many models of a class each free instance has loaded, by class.
	shared map[string][]int
	// copies counts the instances that have the same models loaded.
	copies map[string]int
	// soon are the busy instances, once somebody has asked for them.
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
		p.free[n] = spot{i, SetOf(i.Loaded)}
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
		if i.Can(j) && (best < 0 || p.better(j, loaded, n, best)) {
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

// better reports whether instance a suits the job better than b. With hundreds of instances and
// jobs it is called often, so it looks no further than it must.
func (p *picking) better(j job.Job, loaded []int, a, b int) bool {
	if loaded[a] != loaded[b] {
		return loaded[a] > loaded[b]
	}
	x, y := &p.free[a], &p.free[b]
	if better, worse := suits(j, x, y), suits(j, y, x); better != worse {
		return better
	}
	return x.set != y.set && p.missed(x) < p.missed(y)
}

// suits reports whether an instance suits a job better than another one, whatever is loaded.
func suits(j job.Job, x, y *spot) bool {
	if own := j.Client != "" && x.LastClient == j.Client; own != (j.Client != "" && y.LastClient == j.Client) {
		return own
	}
	if reserved := x.Tenants != nil; reserved != (y.Tenants != nil) {
		return reserved
	}
	return len(x.Classes) < len(y.Classes)
}

// saves reports whether models need not be loaded because the nth free instance gets a job whose
// models it has, and not first, which is the same job or the one that is overtaken.
func (p *picking) saves(first, j job.Job, n int) bool {
	if models := len(p.Models[j.Class]); models == 0 || p.loaded(j.Class)[n] < models {
		return false
	}
	// Without regard to what is loaded, first would go there or to another one.
	blind := -1
	for m := range p.free {
		if p.free[m].Can(first) && (blind < 0 || suits(first, &p.free[m], &p.free[blind])) {
			blind = m
		}
	}
	return blind >= 0 && p.loaded(first.Class)[blind] < len(p.Models[first.Class])
}

// missed returns how much the models will be missed that an instance drops for others: less if many
// instances have them.
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

// overtaker returns the index, in a list of waiting jobs, of the one that an instance should run
// before the first; 0 if that is the first itself.
func (p *picking) overtaker(waiting []job.Job, n int) int {
	i := p.free[n]
	warm := func(j job.Job) bool {
		return i.Can(j) && len(p.Models[j.Class]) > 0 && p.loaded(j.Class)[n] == len(p.Models[j.Class])
	}
	if !p.Overtaking || len(i.Loaded) == 0 || len(p.Models[waiting[0].Class]) == 0 {
		return 0
	}
	for place, j := range waiting {
		if warm(j) {
			for _, before := range waiting[:place] {
				if i.Can(before) && (!mayOvertake(j, before) || p.muchLonger(j, before)) {
					return 0
				}
			}
			return place
		}
		if i.Can(j) && p.Due[j.Key] {
			return 0
		}
	}
	return 0
}

// take removes an instance that gets a job from the free ones.
func (p *picking) take(n int, j job.Job) {
	p.free[n].GPU.Take(j)
	p.copies[p.free[n].set]--
	p.free = slices.Delete(p.free, n, n+1)
	for class, counts := range p.shared {
		p.shared[class] = slices.Delete(counts, n, n+1)
	}
}

// SetOf names a sorted list of models; "" means none.
func SetOf(models []string) string { return strings.Join(models, "\x00") }

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
