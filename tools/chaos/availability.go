package main

import (
	"slices"
	"sync"
	"time"
)

// availability remembers when prompts could have been submitted: while Redis and
// at least one hub were well.
type availability struct {
	mu    sync.Mutex
	hubs  int
	sick  map[string]bool
	since time.Time // when it became possible, zero while it is not
	spans []span
	// calm is how long nothing at all was sick, up to calmFrom; the zero calmFrom
	// means that something is.
	calm     time.Duration
	calmFrom time.Time
}

type span struct{ from, to time.Time }

func newAvailability(hubs int) *availability {
	return &availability{hubs: hubs, sick: map[string]bool{}, since: time.Now(), calmFrom: time.Now()}
}

func (a *availability) down(target string) { a.change(target, true) }
func (a *availability) up(target string)   { a.change(target, false) }

func (a *availability) change(target string, sick bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if sick {
		a.sick[target] = true
	} else {
		delete(a.sick, target)
	}
	switch {
	case len(a.sick) > 0 && !a.calmFrom.IsZero():
		a.calm, a.calmFrom = a.calm+time.Since(a.calmFrom), time.Time{}
	case len(a.sick) == 0 && a.calmFrom.IsZero():
		a.calmFrom = time.Now()
	}
	hubs := len(a.sick)
	if a.sick[redisName] {
		hubs = a.hubs
	}
	switch possible := hubs < a.hubs; {
	case possible && a.since.IsZero():
		a.since = time.Now()
	case !possible && !a.since.IsZero():
		a.spans = append(a.spans, span{a.since, time.Now()})
		a.since = time.Time{}
	}
}

// wellFor is how long Redis and all hubs were well until now, all in all.
func (a *availability) wellFor() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.calmFrom.IsZero() {
		return a.calm
	}
	return a.calm + time.Since(a.calmFrom)
}

// longest returns the longest time, up to until, in which nothing was accepted
// although it could have been, and when that time began.
func (a *availability) longest(accepted []time.Time, until time.Time) (longest time.Duration, from time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	spans := slices.Clone(a.spans)
	if !a.since.IsZero() {
		spans = append(spans, span{a.since, until})
	}
	accepted = slices.SortedFunc(slices.Values(accepted), time.Time.Compare)
	for _, s := range spans {
		last := s.from
		see := func(t time.Time) {
			if gap := t.Sub(last); gap > longest {
				longest, from = gap, last
			}
			last = t
		}
		for _, t := range accepted {
			if t.After(s.from) && t.Before(s.to) {
				see(t)
			}
		}
		see(s.to)
	}
	return longest, from
}
