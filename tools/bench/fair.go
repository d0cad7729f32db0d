package main

import (
	"fmt"
	"time"
)

const (
	// early is how many prompts one tenant posts before the other one comes.
	early = 1000
	// fairInstances are for both; half of them are what the other one may expect.
	fairInstances = 8
	fairCount     = 300
)

// fair compares a tenant's mean slowdown, the time from POST to the end over the time that
// the prompt runs, beside another tenant that has posted a thousand prompts first, and alone
// on half of the instances.
func fair(r *rig) ([]figure, error) {
	list := arrivals(r.seed, fairInstances/2, prompts(r, fairCount), load)
	for n := range list { // of its videos it would wait for itself
		list[n].takes = picture
		list[n].at = time.Duration(float64(list[n].at) * picture.Seconds() / meanTakes().Seconds())
	}
	alone, err := r.slowdown(list, fairInstances/2, 0)
	if err != nil {
		return nil, err
	}
	beside, err := r.slowdown(list, fairInstances, early)
	if err != nil {
		return nil, err
	}
	return []figure{{
		name: "fair", value: beside / alone, unit: "ratio", goal: 1.2, lower: true,
		beside: fmt.Sprintf("mean slowdown %.2f beside %d prompts of another tenant, %.2f alone on %d instances", beside, early, alone, fairInstances/2),
	}}, nil
}

// meanTakes is the mean run time of the prompts that arrivals draws.
func meanTakes() time.Duration { return (picture*(videoEach-1) + video) / videoEach }

// slowdown plays a schedule for one tenant while some prompts of another one wait, and
// returns the mean slowdown of the schedule's.
func (r *rig) slowdown(list []arrival, instances, others int) (float64, error) {
	all, err := r.beside(list, instances, others, picture)
	if err != nil {
		return 0, err
	}
	var sum float64
	for _, p := range all {
		sum += (p.waited + p.takes).Seconds() / p.takes.Seconds()
	}
	return sum / float64(len(all)), nil
}

// beside plays a schedule for the tenant late while prompts of the tenant early wait, given
// words of the hub's Caddyfile.
func (r *rig) beside(list []arrival, instances, others int, takes time.Duration, words ...string) ([]played, error) {
	urls, _, err := r.instances(instances, r.scale)
	if err != nil {
		return nil, err
	}
	r.siteWord = "trust_tenant_from 127.0.0.1"
	h, err := r.fleet("hub", urls, false, words...)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	mine, other := newClient(h.URL(""), 50), newClient(h.URL(""), 1)
	mine.tenant, other.tenant = "late", "early"
	if err := r.warmUp(mine, []*client{mine}, len(list)); err != nil {
		return nil, err
	}
	for n := range others {
		if _, err := other.post(r.ctx, other.body(takes.Seconds(), 2*len(list)+n)); err != nil {
			return nil, err
		}
	}
	all, _, err := r.playWarm(list, mine, []*client{mine})
	return all, err
}
