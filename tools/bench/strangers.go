package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// mostStrangers is the share of the machine that programs of others may use: beyond it, a benchmark
// measures them.
const mostStrangers = 0.1

// work is what a machine has done since it started, and what this program and all that it has started
// and waited for have done of it.
type work struct{ busy, all, own time.Duration }

// readWork reads it where the system tells; else it is zero.
func readWork() (w work) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return w
	}
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var used syscall.Rusage
		if syscall.Getrusage(who, &used) == nil {
			w.own += time.Duration(used.Utime.Nano() + used.Stime.Nano())
		}
	}
	return w.add(string(text))
}

// add adds what /proc/stat says.
func (w work) add(stat string) work {
	const tick = 10 * time.Millisecond
	line, _, _ := strings.Cut(stat, "\n")
	for n, field := range strings.Fields(strings.TrimPrefix(line, "cpu")) {
		ticks, _ := strconv.ParseInt(field, 10, 64)
		t := time.Duration(ticks) * tick
		switch n {
		case 3, 4: // idle, or waiting for a disk
			w.all += t
		case 5, 6: // interrupts: the benchmark's own network more than anybody else's
			w.all += t
		case 0, 1, 2, 7: // user, nice, system, and what other machines on the same hardware took
			w.all += t
			w.busy += t
		} // guests are counted as user time, too
	}
	return w
}

// strangers is the share of the machine's time until a later reading that others used.
func (w work) strangers(later work) float64 {
	if later.all <= w.all {
		return 0
	}
	return max(0, (later.busy-w.busy-(later.own-w.own)).Seconds()/(later.all-w.all).Seconds())
}
