package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// sample is what all programs used at one moment of a run.
type sample struct {
	name  string // of its line in the table
	usage map[string]usage
}

// samples shows how what programs use changes during a run. A leak that two
// measurements would hide shows in a column that only grows.
type samples struct {
	mu  sync.Mutex
	all []sample
}

func (l *samples) add(name string, usage map[string]usage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, sample{name, usage})
}

// watch takes a sample at each tick until ctx ends. A frozen hub may take seconds to
// measure, so the line has the time that has really passed.
func (l *samples) watch(ctx context.Context, tick <-chan time.Time, measure func(context.Context) map[string]usage) {
	begin := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		// A sample that the end of the run cuts short would lack goroutines.
		if taken := measure(ctx); ctx.Err() == nil {
			l.add(fmt.Sprintf("%.1f min", time.Since(begin).Minutes()), taken)
		}
	}
}

// print writes a table with a line for each sample and a column for each program.
func (l *samples) print(w io.Writer, programs []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 {
		return
	}
	fmt.Fprintln(w, "resident MB / descriptors / goroutines of hubs; a dash is a program that was down")
	fmt.Fprintf(w, "\n| when | %s |\n", strings.Join(programs, " | "))
	fmt.Fprintf(w, "| ---%s |\n", strings.Repeat(" | ---", len(programs)))
	line := func(name string, cell func(program string) string) {
		fmt.Fprintf(w, "| %s", name)
		for _, program := range programs {
			fmt.Fprintf(w, " | %s", cell(program))
		}
		fmt.Fprintln(w, " |")
	}
	for _, s := range l.all {
		line(s.name, func(program string) string { return s.usage[program].String() })
	}
	last := l.all[len(l.all)-1].usage
	line("peak since its last start, MB", func(program string) string { return fmt.Sprint(last[program].peak >> 20) })
}

// String shows what a program uses as it stands in the table.
func (u usage) String() string {
	switch {
	case u.resident == 0:
		return "-"
	case u.goroutines == 0:
		return fmt.Sprintf("%d / %d", u.resident>>20, u.files)
	}
	return fmt.Sprintf("%d / %d / %d", u.resident>>20, u.files, u.goroutines)
}

// spare is how many more descriptors or goroutines a program may have at the end of
// a run, beyond twice what it began with: its connections come and go.
const spare = 64

// grown says what a program holds too much of once all clients have gone; empty if
// nothing. Memory is not judged: the runtime returns it late.
func grown(before, after usage) string {
	var all []string
	if after.files > 2*before.files+spare {
		all = append(all, fmt.Sprintf("%d descriptors, %d at the start", after.files, before.files))
	}
	// No goroutines means that they are not known.
	if before.goroutines > 0 && after.goroutines > 2*before.goroutines+spare {
		all = append(all, fmt.Sprintf("%d goroutines, %d at the start", after.goroutines, before.goroutines))
	}
	return strings.Join(all, "; ")
}
