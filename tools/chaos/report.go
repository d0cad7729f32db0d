package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// tolerated is how long nothing may be accepted although Redis and a hub are well:
// a hub may need a few seconds to see that Redis is back.
const tolerated = 10 * time.Second

// report is the outcome of a run.
type report struct {
	options            options
	stage              *stage
	tally              *tally
	samples            samples
	struck             map[string]int
	silence            time.Duration
	silentFrom         time.Time
	attempts, executed int
	full, waited       int // see judge
}

func newReport(o options, s *stage) *report { return &report{options: o, stage: s, tally: newTally()} }

// print writes the report and tells whether every promise was kept.
func (r *report) print(w io.Writer) (kept bool) {
	t := r.tally
	if r.silence > tolerated {
		t.breach(silent, "nothing was accepted for %.1f s from %s on", r.silence.Seconds(), r.silentFrom.Format("15:04:05.000"))
	}
	faults, accepted, cancelled := 0, 0, 0
	for _, n := range r.struck {
		faults += n
	}
	for _, p := range t.prompts {
		if p.accepted {
			accepted++
		}
		if p.cancelled {
			cancelled++
		}
	}
	fmt.Fprintf(w, "\nseed %d, %v: %d faults of %d kinds\n", r.options.seed, r.options.duration, faults, len(r.struck))
	for _, name := range slices.Sorted(maps.Keys(r.struck)) {
		fmt.Fprintf(w, "  %s %d", name, r.struck[name])
	}
	fmt.Fprintf(w, "\n\n%d prompts accepted, %d of them cancelled; answers to POST /prompt:%s\n", accepted, cancelled, t.answers())
	fmt.Fprintf(w, "%d sockets, %d pictures checked, %d reported lost on a socket, %d ends sent again after a reconnect, %d runs of %d prompts\n",
		t.sockets, t.pictures, t.owed, t.again, r.attempts, r.executed)
	gone, late, refused := r.stage.deafness()
	fmt.Fprintf(w, "gossip: %d packets lost, %d late, %d connections refused; %d log lines of a full disk, %d of hubs that wait for Redis or the storage; %d prompts dropped from the history of a full Redis\n",
		gone, late, refused, r.full, r.waited, t.dropped)
	fmt.Fprintf(w, "longest time without an accepted prompt while Redis and a hub were well: %.1f s\n\n", r.silence.Seconds())
	r.samples.print(w, r.stage.measured())
	fmt.Fprintln(w)
	for _, promise := range promises {
		fmt.Fprintf(w, "%-12s %d\n", promise, len(t.broken[promise]))
		for _, text := range t.broken[promise] {
			fmt.Fprintf(w, "    %s\n", text)
		}
	}
	return len(t.broken) == 0
}
