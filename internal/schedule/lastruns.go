package schedule

import (
	"slices"
	"sync"
)

// lastRuns keeps what was measured of the last runs of each pair. It is safe for concurrent use. The
// zero value knows nothing and is ready to use.
type lastRuns[T any] struct {
	mu    sync.Mutex
	known map[Pair][]T
}

// add learns from one run.
func (l *lastRuns[T]) add(p Pair, run T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keep(p, append(slices.Clone(l.known[p]), run))
}

// Set replaces what is known about a pair with what all hubs know, the oldest run first.
func (l *lastRuns[T]) Set(p Pair, runs []T) {
	if len(runs) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keep(p, runs)
}

// keep stores the last runs of a pair. The caller holds the lock.
func (l *lastRuns[T]) keep(p Pair, runs []T) {
	if l.known == nil || l.known[p] == nil && len(l.known) >= MaxCells {
		l.known = map[Pair][]T{} // what is forgotten will be read or learned again
	}
	l.known[p] = runs[max(0, len(runs)-keptSamples):]
}

// of returns the last runs of a pair, the oldest first.
func (l *lastRuns[T]) of(p Pair) []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known[p]
}
