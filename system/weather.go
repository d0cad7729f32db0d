package system

import (
	"slices"
	"sync"
	"time"
)

// weather is which hosts faults concern, and until when they did.
type weather struct {
	mu sync.Mutex
	// faults counts those of each host, and healed is when its last one ended.
	faults map[string]int
	healed map[string]time.Time
}

func (w *weather) begins(f Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.faults == nil {
		w.faults, w.healed = map[string]int{}, map[string]time.Time{}
	}
	for _, host := range f.On {
		w.faults[host]++
	}
}

func (w *weather) heals(f Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, host := range f.On {
		w.faults[host]--
		w.healed[host] = time.Now()
	}
}

// calm reports whether none of the hosts had a fault within a time; without hosts, whether
// nobody had.
func (w *weather) calm(within time.Duration, hosts ...string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for host, n := range w.faults {
		if (n > 0 || time.Since(w.healed[host]) < within) && (len(hosts) == 0 || slices.Contains(hosts, host)) {
			return false
		}
	}
	return true
}
