package system

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Trace is what has happened, by system time.
type Trace struct {
	mu     sync.Mutex
	began  time.Time
	events []event
}

type event struct {
	at    time.Duration
	about []string
	text  string
}

func newTrace() *Trace { return &Trace{began: time.Now()} }

// Note adds an event. about are the prompts and clients that it concerns; an event that
// concerns none of them, such as a fault, concerns all.
func (t *Trace) Note(about []string, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, event{time.Since(t.began), about, fmt.Sprintf(format, args...)})
}

// Of is the part of the trace that concerns a prompt or a client.
func (t *Trace) Of(name string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	for _, e := range t.events {
		if len(e.about) == 0 || slices.Contains(e.about, name) {
			fmt.Fprintf(&b, "%10.3f  %s\n", e.at.Seconds(), e.text)
		}
	}
	return b.String()
}
