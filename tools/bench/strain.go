package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	// longest is how much longer than they should simulated servers may run prompts, as a share:
	// beyond that, a benchmark measures the machine and not the hub.
	longest = 0.03
	// busiest is the share of the processors' time that may be used while a schedule is played.
	busiest = 0.9
	// latest is how late prompts may be posted on average, as a share of the mean time that they
	// run.
	latest = 0.03
)

// void says why a figure would mean nothing.
type void struct{ reason string }

func (v void) Error() string { return "void: " + v.reason }

// strain is how well the machine kept up while a schedule was played.
type strain struct {
	// ran is how long servers ran all prompts together, and due how long they should have.
	ran, due time.Duration
	// late is how late prompts were posted, on average.
	late time.Duration
	// used is the share of the processors' time that was used; negative if unknown.
	used float64
}

// String is for people.
func (s strain) String() string {
	return fmt.Sprintf("servers ran %+.1f %%, posts were %.1f ms late, the machine was busy for %.0f %%", 100*s.longer(), ms(s.late), 100*s.used)
}

func (s strain) longer() float64 { return s.ran.Seconds()/s.due.Seconds() - 1 }

// void returns what makes the figures of a schedule worthless, or nil. How long prompts with
// models should run is not known.
func (s strain) void(list []arrival) error {
	mean := s.due / time.Duration(len(list))
	switch {
	case list[0].model == 0 && s.longer() > longest:
		return void{fmt.Sprintf("the simulated servers ran %.1f %% longer than they should", 100*s.longer())}
	case s.used > busiest:
		return void{fmt.Sprintf("the machine was busy for %.0f %% of the time", 100*s.used)}
	case s.late.Seconds() > latest*mean.Seconds():
		return void{fmt.Sprintf("prompts were posted %.1f ms late, on average", ms(s.late))}
	}
	return nil
}

// processors is what all of them have done since the machine started, in ticks.
type processors struct{ idle, all int64 }

// readLoad reads it where the system tells; else it is zero.
func readLoad() (p processors) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return p
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for n, field := range strings.Fields(strings.TrimPrefix(line, "cpu")) {
		const idle, guest = 3, 8 // guests are counted as user time, too
		ticks, _ := strconv.ParseInt(field, 10, 64)
		if n >= guest {
			break
		}
		if n == idle || n == idle+1 { // or waiting for a disk
			p.idle += ticks
		}
		p.all += ticks
	}
	return p
}

// share is the share of the time until a later reading that was used; negative if unknown.
func (p processors) share(later processors) float64 {
	if later.all <= p.all {
		return -1
	}
	return 1 - float64(later.idle-p.idle)/float64(later.all-p.all)
}
