package main

import (
	"fmt"
	"slices"
	"time"
)

const (
	// A person posts prompts of a picture's length, one each thinkTime; the batch of
	// another tenant keeps all instances busy meanwhile. All in simulated time.
	personPrompts = 60
	thinkTime     = 20 * time.Second
	batchTakes    = 60 * time.Second
	batchPrompts  = 240
)

// bands make the tenant late a person and the tenant early a batch.
var bands = []string{
	"tenant_limits late {\n\t\tband interactive\n\t}",
	"tenant_limits early {\n\t\tband bulk\n\t}",
}

// interactive compares the p95 wait of a person's prompts beside a batch that fills the
// fleet with how long they run, with `preempt bulk` and without.
func interactive(r *rig) ([]figure, error) {
	list := make([]arrival, personPrompts)
	for n := range list {
		list[n] = arrival{at: time.Duration(n) * thinkTime, takes: picture}
	}
	var waits [2]time.Duration
	second := time.Duration(float64(time.Second) * r.scale) // in simulated time
	for n, words := range [][]string{bands, append(slices.Clone(bands), "preempt bulk "+second.String())} {
		all, err := r.beside(list, fairInstances, batchPrompts, batchTakes, words...)
		if err != nil {
			return nil, err
		}
		waits[n] = p95(all)
	}
	return []figure{{
		name: "interactive", value: waits[1].Seconds() / picture.Seconds(), unit: "ratio", goal: 1.5, lower: true,
		beside: fmt.Sprintf("p95 of the wait %.1f s with preempt bulk, %.1f s without, for prompts of %.0f s beside a batch of prompts of %.0f s (simulated seconds)",
			waits[1].Seconds(), waits[0].Seconds(), picture.Seconds(), batchTakes.Seconds()),
	}}, nil
}

// p95 is the wait that one prompt in twenty exceeds.
func p95(all []played) time.Duration {
	waits := make([]time.Duration, len(all))
	for n, p := range all {
		waits[n] = p.waited
	}
	slices.Sort(waits)
	return waits[len(waits)*95/100]
}
