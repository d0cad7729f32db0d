package dispatch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// dayWaits are the waits of a simulation, by kind and by tenant.
type dayWaits map[string][]time.Duration

func (w *dayWaits) add(a arrival, waited time.Duration) {
	if *w == nil {
		*w = dayWaits{}
	}
	for _, name := range []string{"all", a.kind.name, "tenant " + a.tenant} {
		(*w)[name] = append((*w)[name], waited)
	}
}

func (w dayWaits) mean(name string) time.Duration {
	var sum time.Duration
	for _, one := range w[name] {
		sum += one
	}
	return sum / time.Duration(max(len(w[name]), 1))
}

// longest is the longest wait that a part of the jobs has at most, from 0 to 1.
func (w dayWaits) longest(name string, part float64) time.Duration {
	sorted := slices.Sorted(slices.Values(w[name]))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(part*float64(len(sorted))), len(sorted)-1)]
}

// String lists each kind and tenant.
func (w dayWaits) String() string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(w)) {
		lines = append(lines, fmt.Sprintf("%-10s %7d jobs, wait: mean %7.2f s, p95 %7.2f s, longest %7.2f s", name, len(w[name]),
			w.mean(name).Seconds(), w.longest(name, 0.95).Seconds(), w.longest(name, 1).Seconds()))
	}
	return strings.Join(lines, "\n")
}

// roundRobin is what a balancer does that knows nothing of the servers: each of those
// that can run a prompt in turn, where it waits behind what came before.
func (s daySpec) roundRobin(list []arrival) (waits dayWaits) {
	free, loaded, turn := make([]time.Duration, s.servers), make([]string, s.servers), 0
	for _, a := range list {
		for turn++; !s.able(turn%s.servers, a.kind); turn++ {
		}
		n := turn % s.servers
		start := max(free[n], a.at)
		waits.add(a, start-a.at)
		free[n], loaded[n] = start+s.lasting(n, a, loaded[n]), a.kind.model
	}
	return waits
}

// firstCome is an ideal central queue that costs nothing: prompts begin in the order of
// their arrival, each on the server that is free first of those that can run it.
func (s daySpec) firstCome(list []arrival) (waits dayWaits, switches int) {
	free, loaded := make([]time.Duration, s.servers), make([]string, s.servers)
	for _, a := range list {
		n := -1
		for m := range free {
			if s.able(m, a.kind) && (n < 0 || free[m] < free[n]) {
				n = m
			}
		}
		start := max(free[n], a.at)
		waits.add(a, start-a.at)
		if loaded[n] != a.kind.model {
			switches++
		}
		free[n], loaded[n] = start+s.lasting(n, a, loaded[n]), a.kind.model
	}
	return waits, switches
}
