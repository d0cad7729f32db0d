package schedule

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	// patience is how long the work that waits may take once all instances that were asked for are
	// there. Jobs that end sooner need no more of them.
	patience = time.Minute
	// fullLoad is how busy instances may be on average before there should be more of them, and
	// lightLoad how busy those that are left may become when one goes. The gap keeps a steady load
	// from starting and stopping the same instance over and over.
	fullLoad, lightLoad = 0.8, 0.6
	// trifling is a load for which nobody keeps an instance: a few short jobs within the last minutes.
	// Such a job starts one when it comes.
	trifling = 0.1
	// usualStart is how long a start is taken to be before any was seen.
	usualStart = time.Minute
)

// Demand is what is known about a class of instances that come and go by need.
type Demand struct {
	// Waiting are the learned times of the jobs that wait for an instance of the class.
	Waiting []time.Duration
	// Load is how many instances the work of the last minutes keeps busy: its learned seconds
	// divided by the seconds in which it came.
	Load float64
	// Instances are those that are there and not leaving.
	Instances []Elastic
	// Starting is how many have been asked for and are not there yet.
	Starting int
	// Start is how long it takes from asking for an instance to its first job; 0 if none was seen.
	Start time.Duration
}

// Elastic is an instance that may be stopped when nobody needs it.
type Elastic struct {
	Name string
	// Left is how long what it runs still takes; only for Busy ones.
	Left time.Duration
	Busy bool
	// Idle is how long it has had nothing to do.
	Idle time.Duration
	// Needed says that it has the models loaded of a job that is expected soon.
	Needed bool
}

// ScaleBounds are what an operator has set for a class.
type ScaleBounds struct {
	// Min and Max bound how many instances there are, without those that the budget forbids.
	Min, Max int
	// IdleAfter is how long an instance has nothing to do before it goes.
	IdleAfter time.Duration
	// Price is what one costs an hour, and Left is how much of the budget is left: infinite for no
	// budget. Both are in the operator's money.
	Price, Left float64
}

// Scale is how many instances of a class there should be.
type Scale struct {
	// Wanted counts those that are there, those that are starting, and those to be started.
	Wanted int
	// Release are the idle instances that may go, those that were idle longest first. Wanted does
	// not count them.
	Release []string
	// Drain are busy instances that the budget no longer pays for: they are to get no more jobs, and
	// Wanted still counts them until they are idle.
	Drain []string
	// Why says in one sentence what decided.
	Why string
}

// Wanted says how many instances of a class there should be. More are wanted if the waiting work
// would not be done a minute after they are up, or if those that are there are too busy on average.
// One goes when it has been idle for long enough and the others are not too busy without it; each
// job that waits keeps one more, so that jobs that cannot run anywhere keep no whole fleet. The
// budget is stronger than Min.
func (b ScaleBounds) Wanted(d Demand) Scale {
	have := len(d.Instances) + d.Starting
	afford := b.afford(d)
	if have > afford {
		release := d.idle(have-min(afford, b.Max), func(Elastic) bool { return true })
		return Scale{have - len(release), release, d.ending(have - len(release) - afford), "the budget is spent"}
	}
	need, why := b.need(d, have)
	limit := min(b.Max, afford)
	switch {
	case need > limit && afford < b.Max:
		need, why = limit, why+", as many as the budget allows"
	case need > limit:
		need, why = limit, why+", as many as max allows"
	}
	if need > have {
		return Scale{Wanted: need, Why: why}
	}
	if release := b.release(d, have); len(release) > 0 {
		return Scale{Wanted: have - len(release), Release: release, Why: fmt.Sprintf("%d idle for %v or longer", len(release), b.IdleAfter)}
	}
	return Scale{Wanted: have, Why: "enough for what waits and arrives"}
}

// need is how many instances the work asks for, never more than there are jobs for.
func (b ScaleBounds) need(d Demand, have int) (int, string) {
	start, work := cmp.Or(d.Start, usualStart), time.Duration(0)
	for _, w := range d.Waiting {
		work += w
	}
	waiting := work
	busy := d.busy()
	for _, i := range d.Instances {
		if i.Busy {
			work += i.Left
		}
	}
	// What is there works while others start; those that are starting already are taken to be as
	// far from ready as any.
	work -= time.Duration(len(d.Instances))*(start+patience) + time.Duration(d.Starting)*patience
	need, why := b.Min, "min"
	if steady := d.steady(fullLoad); steady > need {
		need, why = steady, fmt.Sprintf("the last minutes' work keeps %.1f instances busy", d.Load)
	}
	if n := min(have+int((work+patience-1)/patience), len(d.Waiting)+busy); work > 0 && n > max(need, have) {
		need, why = n, fmt.Sprintf("%d jobs wait, with %v of work", len(d.Waiting), waiting.Round(time.Second))
	}
	if len(d.Waiting) > 0 && have == 0 && need == 0 {
		need, why = 1, "a job waits and no instance is there"
	}
	return need, why
}

// afford is how many instances the budget can pay until they would go again by themselves.
func (b ScaleBounds) afford(d Demand) int {
	if b.Price <= 0 || math.IsInf(b.Left, 1) {
		return math.MaxInt
	}
	each := b.Price * (cmp.Or(d.Start, usualStart) + b.IdleAfter).Hours()
	return int(min(max(b.Left/each, 0), math.MaxInt32))
}

// release lists the instances that may go because nobody needs them.
func (b ScaleBounds) release(d Demand, have int) []string {
	keep := max(b.Min, d.steady(lightLoad))
	if waiting := len(d.Waiting); waiting > 0 { // one each: more than that are idle beside jobs that cannot run there
		keep = max(keep, d.busy()+waiting)
	}
	keep = min(keep, b.Max)
	return d.idle(have-keep, func(i Elastic) bool { return i.Idle >= b.IdleAfter && !i.Needed })
}

// steady is how many instances the load keeps so busy.
func (d Demand) steady(busy float64) int {
	if d.Load < trifling {
		return 0
	}
	return int(math.Ceil(d.Load / busy))
}

// busy counts the instances that work.
func (d Demand) busy() (n int) {
	for _, i := range d.Instances {
		if i.Busy {
			n++
		}
	}
	return n
}

// ending lists up to most busy instances, those that will be idle soonest first.
func (d Demand) ending(most int) (names []string) {
	list := slices.DeleteFunc(slices.Clone(d.Instances), func(i Elastic) bool { return !i.Busy })
	slices.SortStableFunc(list, func(a, b Elastic) int { return cmp.Or(cmp.Compare(a.Left, b.Left), cmp.Compare(a.Name, b.Name)) })
	for _, i := range list[:max(min(most, len(list)), 0)] {
		names = append(names, i.Name)
	}
	return names
}

// idle lists up to most idle instances that may go, those that were idle longest first.
func (d Demand) idle(most int, may func(Elastic) bool) (names []string) {
	list := slices.DeleteFunc(slices.Clone(d.Instances), func(i Elastic) bool { return i.Busy || !may(i) })
	slices.SortStableFunc(list, func(a, b Elastic) int { return cmp.Or(cmp.Compare(b.Idle, a.Idle), cmp.Compare(a.Name, b.Name)) })
	for _, i := range list[:max(min(most, len(list)), 0)] {
		names = append(names, i.Name)
	}
	return names
}
