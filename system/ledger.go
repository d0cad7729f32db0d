package system

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
)

// Ledger is what the clients were promised, and what was broken.
type Ledger struct {
	mu       sync.Mutex
	prompts  []*Prompt
	breaches []Breach
}

// Breach is a promise that was broken.
type Breach struct {
	// About is the prompt.
	About string
	What  string
}

func (b Breach) String() string { return b.About + ": " + b.What }

func (l *Ledger) accepted(p *Prompt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prompts = append(l.prompts, p)
}

func (l *Ledger) breach(about, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.breaches = append(l.breaches, Breach{about, fmt.Sprintf(format, args...)})
}

// Breaches are what was broken so far.
func (l *Ledger) Breaches() []Breach {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Breach(nil), l.breaches...)
}

// Accepted is how many prompts were accepted.
func (l *Ledger) Accepted() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.prompts)
}

// InParts is how many prompts were made by several servers together, as their pictures show.
func (l *Ledger) InParts() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.prompts {
		if p.InParts {
			n++
		}
	}
	return n
}

// some are up to n of the prompts that were accepted, rather late ones.
func (l *Ledger) some(r *rand.Rand, n int) []*Prompt {
	l.mu.Lock()
	defer l.mu.Unlock()
	var some []*Prompt
	late := l.prompts[max(0, len(l.prompts)-20):]
	for range min(n, len(late)) {
		some = append(some, late[r.IntN(len(late))])
	}
	return some
}

// prompt is an accepted one by its id, nil if there is none.
func (l *Ledger) prompt(id string) *Prompt {
	return l.find(func(p *Prompt) bool { return p.ID == id })
}

// of is the id of a prompt by its color.
func (l *Ledger) of(color int) string {
	if p := l.find(func(p *Prompt) bool { return p.Color == color }); p != nil {
		return p.ID
	}
	return "nobody's prompt"
}

func (l *Ledger) find(is func(*Prompt) bool) *Prompt {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := slices.IndexFunc(l.prompts, is); n >= 0 {
		return l.prompts[n]
	}
	return nil
}

// untold are accepted prompts of which nobody was told the end.
func (l *Ledger) untold() []*Prompt {
	l.mu.Lock()
	defer l.mu.Unlock()
	var left []*Prompt
	for _, p := range l.prompts {
		if p.Told.IsZero() {
			left = append(left, p)
		}
	}
	return left
}
