package main

import (
	"fmt"
	"slices"
	"time"
)

const (
	// etaLearning prompts run first; of the others, those count that wait for longer than
	// etaWaits in simulated time.
	etaLearning = 200
	etaCount    = 1200
	etaWaits    = 5 * time.Second
)

// eta compares the wait that the hub promises with the answer to a POST with the real one.
func eta(r *rig) ([]figure, error) {
	const instances = 8
	urls, _, err := r.instances(instances, r.scale)
	if err != nil {
		return nil, err
	}
	h, err := r.fleet("hub", urls, false)
	if err != nil {
		return nil, err
	}
	c := newClient(h.URL(""), 50)
	if err := r.warmUp(c, []*client{c}, etaCount); err != nil {
		return nil, err
	}
	list := arrivals(r.seed, instances, etaCount, load)
	promised := make([]time.Duration, len(list))
	all, _, err := playBy(r, list, []*client{c}, func(n int) (id string, err error) {
		id, promised[n], err = c.postAsking(r.ctx, c.bodyOf(list[n], n))
		return id, err
	})
	if err != nil {
		return nil, err
	}
	errors, silent := misses(all[etaLearning:], promised[etaLearning:], r.scale)
	if len(errors) == 0 {
		return nil, fmt.Errorf("no prompt has waited for %v with a promise", etaWaits)
	}
	return []figure{{
		name: "eta", value: errors[len(errors)/2], unit: "ratio", goal: 0.25, lower: true,
		beside: fmt.Sprintf("for %d prompts; a tenth misses by more than %.2f; %d more had no promise", len(errors), errors[len(errors)*9/10], silent),
	}}, nil
}

// misses returns by which share of the real wait promises differ from it, sorted, for prompts
// that have waited long enough, and how many of these had no promise. A promise says in how
// long the prompt will be finished, in real time.
func misses(all []played, promised []time.Duration, scale float64) (shares []float64, silent int) {
	for n, p := range all {
		switch {
		case p.waited <= etaWaits:
		case promised[n] < 0:
			silent++
		default:
			wait := promised[n].Seconds()/scale - p.takes.Seconds()
			shares = append(shares, max(wait-p.waited.Seconds(), p.waited.Seconds()-wait)/p.waited.Seconds())
		}
	}
	slices.Sort(shares)
	return shares, silent
}
