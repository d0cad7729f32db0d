package system

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
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
	// decisions are those of the schedule and of each client, in their order.
	decisions map[string][]string
}

type event struct {
	at    time.Duration
	about []string
	text  string
}

func newTrace() *Trace { return &Trace{began: time.Now(), decisions: map[string][]string{}} }

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

// Decide notes what somebody has decided that must not depend on anything but the seed.
func (t *Trace) Decide(who, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.decisions[who] = append(t.decisions[who], fmt.Sprintf(format, args...))
}

// Decisions are what was decided, by whom.
func (t *Trace) Decisions() map[string][]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.decisions)
}

// Hash tells runs apart that have decided other things.
func (t *Trace) Hash() string {
	all := t.Decisions()
	sum := sha256.New()
	for _, who := range slices.Sorted(maps.Keys(all)) {
		_, _ = fmt.Fprintf(sum, "%s: %q\n", who, all[who])
	}
	return hex.EncodeToString(sum.Sum(nil)[:6])
}
