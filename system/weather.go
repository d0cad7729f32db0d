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
	// settles is when all is as it should be again.
	settles time.Time
	// forgot is whether Redis has lost writes that it had acknowledged.
	forgot bool
}

// processOf is what is concerned, besides its host, when a process is stopped or held up.
func processOf(host string) string { return "process of " + host }

func concerned(f Fault) []string {
	switch f.Kind {
	case "kill", "restart", "freeze", "reload", "power cut", "broken data":
		return append(slices.Clone(f.On), processOf(f.On[0]))
	case "kill at a call", "kill after a call":
		hosts := slices.Clone(f.On)
		for _, hub := range f.On {
			hosts = append(hosts, processOf(hub))
		}
		return hosts
	}
	return f.On
}

func (w *weather) begins(f Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.faults == nil {
		w.faults, w.healed = map[string]int{}, map[string]time.Time{}
	}
	for _, host := range concerned(f) {
		w.faults[host]++
	}
	w.forgot = w.forgot || f.Kind == "failover" || f.Kind == "crash"
}

// heals notes that a fault has ended, and how long after that all is as it should be.
func (w *weather) heals(f Fault, settles time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, host := range concerned(f) {
		w.faults[host]--
		w.healed[host] = time.Now()
	}
	if until := time.Now().Add(settles); until.After(w.settles) {
		w.settles = until
	}
}

// settled reports whether nothing is wrong anywhere and nothing is left of what was.
func (w *weather) settled() bool {
	w.mu.Lock()
	settles := w.settles
	w.mu.Unlock()
	return !time.Now().Before(settles) && w.calm(0)
}

// complete reports whether a hub must know all that was accepted: neither it nor Redis had a
// fault within believed, and after Redis lost writes no other hub had either. One that was
// down may be the only one that can put back what Redis lost.
func (w *weather) complete(hub string, hubs []*Hub) bool {
	hosts := []string{"redis", hub}
	if w.hasForgotten() {
		for _, h := range hubs {
			hosts = append(hosts, h.name)
		}
	}
	return w.calm(believed, hosts...)
}

// hasForgotten reports whether Redis has lost writes that it had acknowledged.
func (w *weather) hasForgotten() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.forgot
}

// everFaults reports whether there was any.
func (w *weather) everFaults() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.faults != nil
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
