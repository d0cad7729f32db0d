package schedule

import (
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
)

// Spot is an instance that takes jobs, and what is known about its time.
type Spot struct {
	Idle
	// Kind is the type of its GPU. Device is the GPU itself, if others may use it.
	Kind, Device string
	// Set names the models that it will have loaded, see [SetOf].
	Set string
	// Free is how long until it has finished what it is running, and Shape the shape of that.
	Free  time.Duration
	Shape string
	// Guessed says that nobody knows how long that will take.
	Guessed bool
	// vague says that nobody knows when it will be free for the next job of a line.
	vague bool
}

// Horizon is what a forecast starts from.
type Horizon struct {
	Spots []Spot
	// Shared are the GPUs that several instances use, by Spot.Device.
	Shared map[string]*GPU
	// Line is the first waiting jobs, in the order in which they are due.
	Line []job.Job
	// ShortFirst and Overtaking say which jobs may go before others, as for [Pick].
	ShortFirst, Overtaking bool
	// Estimate returns how long jobs of a shape run on a type of GPU.
	Estimate func(shape, kind string) Estimate
	// Models returns the models that the jobs of a class load, sorted; none if unknown.
	Models func(class string) []string
}

// Forecast tells when the jobs of a line will be finished: each goes, in the order in which they
// will probably begin, to the instance that will finish it first.
type Forecast struct {
	Horizon
	// users are the indexes of the spots that use a shared GPU, by its name.
	users map[string][]int
	// order is the jobs in the order in which they will probably begin.
	order []job.Job
	// ends is when they end, by key, and begins when they begin, of those that an instance can run; -1
	// if unknown.
	ends, begins map[string]time.Duration
	// mean is the mean run time of the line.
	mean time.Duration
}

// Foresee makes a forecast.
func Foresee(h Horizon) *Forecast {
	f := &Forecast{Horizon: h, users: map[string][]int{}, ends: map[string]time.Duration{}, begins: map[string]time.Duration{}}
	f.Spots = slices.Clone(h.Spots)
	for n, s := range f.Spots {
		if f.Shared[s.Device] != nil {
			f.users[s.Device] = append(f.users[s.Device], n)
		}
	}
	f.order = f.inTurn()
	var sum time.Duration
	for _, j := range f.order {
		end, ran := f.give(j)
		f.ends[j.Key] = end
		sum += ran
	}
	if len(f.Line) > 0 {
		f.mean = sum / time.Duration(len(f.Line))
	}
	return f
}

// inTurn returns the line with short jobs first, as Pick takes them. It does not know how long each
// has already been overtaken.
func (f *Forecast) inTurn() []job.Job {
	w := Warmth{Overtaking: f.Overtaking}
	if f.ShortFirst && len(f.Spots) > 0 {
		w.Takes = Takes(f.Line, func(shape string) time.Duration { return f.Estimate(shape, f.Spots[0].Kind).Ran })
	}
	order, _ := ShortFirst(f.Line, w)
	return order
}

// give gives a job to the instance that will finish it first, and returns when it ends there and
// how long it runs; -1 and 0 if no instance can run it, and -1 if its own run time is not known.
func (f *Forecast) give(j job.Job) (end, ran time.Duration) {
	set := SetOf(f.Models(j.Class))
	var first *Spot
	var e Estimate // on the GPU type kind
	var kind string
	for n := range f.Spots {
		s := &f.Spots[n]
		if !s.Can(j) {
			continue
		}
		if kind != s.Kind || first == nil {
			kind = s.Kind
			e = f.Estimate(j.Shape, kind)
		}
		takes := e.Ran
		if set != "" && set != s.Set {
			takes += e.Load
		}
		if by := f.from(s, j) + takes; first == nil || by < end {
			first, end, ran = s, by, takes
		}
	}
	if first == nil {
		return -1, 0
	}
	if set != "" {
		first.Set = set
	}
	if f.begins[j.Key] = max(end-ran, 0); first.Guessed || first.vague {
		f.begins[j.Key] = -1
	}
	first.Free, first.Shape = end, j.Shape
	if !f.Estimate(j.Shape, first.Kind).Certain() {
		first.vague = true
		return -1, ran
	}
	return end, ran
}

// from returns when a job could begin on an instance: once the instance is free and its GPU has
// room beside whatever the other instances there are running by then.
func (f *Forecast) from(s *Spot, j job.Job) time.Duration {
	g := f.Shared[s.Device]
	if g == nil {
		return s.Free
	}
	moments := []time.Duration{s.Free}
	for _, n := range f.users[s.Device] {
		if free := f.Spots[n].Free; free > s.Free {
			moments = append(moments, free)
		}
	}
	slices.Sort(moments)
	for _, at := range moments {
		then := GPU{Total: g.Total, Need: g.Need}
		for _, n := range f.users[s.Device] {
			if other := &f.Spots[n]; other.Name != s.Name && other.Free > at {
				then.Take(job.Job{Shape: other.Shape})
			}
		}
		if then.Fits(j) {
			return at
		}
	}
	return moments[len(moments)-1] // not reached: the others have ended by then
}

// End returns when a job of the line ends, -1 if unknown; false if it is not in the line.
func (f *Forecast) End(key string) (end time.Duration, ok bool) {
	end, ok = f.ends[key]
	return end, ok
}

// Begin returns when a job of the line begins, -1 if unknown; false if it is not in the line, or no
// instance can run it.
func (f *Forecast) Begin(key string) (begin time.Duration, ok bool) {
	begin, ok = f.begins[key]
	return begin, ok
}

// Behind returns when a job ends that is behind the line with position others ahead of it, -1 if
// unknown: it assumes that those between them run for as long as the line's do on average.
func (f *Forecast) Behind(j job.Job, position int) time.Duration {
	if position < 0 {
		return -1
	}
	var free []time.Duration
	kind := ""
	for _, s := range f.Spots {
		if s.Classes[j.Class] {
			free, kind = append(free, s.Free), s.Kind
		}
	}
	e := f.Estimate(j.Shape, kind)
	each := f.mean
	if len(f.Line) == 0 { // they have arrived since
		each = e.Ran
	}
	start, ok := Wait(free, max(position-len(f.Line), 0), each)
	if !ok || !e.Certain() {
		return -1
	}
	return start + e.Ran
}

// Before returns the prompt ids of a tenant's jobs that are in the line before a waiting one of it;
// false if that is not in the line.
func (f *Forecast) Before(j job.Job) (own []string, ok bool) {
	for _, before := range f.Line {
		switch {
		case before.Key == j.Key:
			return own, true
		case before.Tenant == j.Tenant:
			own = append(own, before.ID)
		}
	}
	return nil, false
}

// Starts returns how long it takes until each of the given jobs, which are the first in line, can
// begin; -1 where unknown. leaving says which instances' runs end at once.
func (h Horizon) Starts(waiting []job.Job, leaving func(instance string) bool) []time.Duration {
	spots := slices.Clone(h.Spots)
	for n := range spots {
		if s := &spots[n]; leaving(s.Name) {
			s.Free, s.Guessed = 0, false
		}
	}
	starts := make([]time.Duration, len(waiting))
	for n, j := range waiting {
		var first *Spot
		for at := range spots {
			s := &spots[at]
			if !s.Guessed && s.Can(j) && (first == nil || s.Free < first.Free) {
				first = s
			}
		}
		if first == nil {
			starts[n] = -1
			continue
		}
		starts[n] = first.Free
		first.Free += h.Estimate(j.Shape, first.Kind).Ran
	}
	return starts
}
