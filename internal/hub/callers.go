package hub

import (
	"slices"
	"sync"
	"time"
)

// Bounds of what is remembered about callers.
const (
	// acquaintanceFor is how long an address keeps the client ids that were
	// used from it.
	acquaintanceFor = 6 * time.Hour
	maxOrigins      = 10_000
	maxPerOrigin    = 32
	// namedFor is how long a delete tells what a following bare interrupt
	// means: some clients cancel with one call of each.
	namedFor = 10 * time.Second
)

// acquaintances remember which callers have posted from which address and
// program: most clients name their client id in POST /prompt and in nothing
// else, and their bare interrupt must still find their own job.
type acquaintances struct {
	mu      sync.Mutex
	origins map[string]map[string]time.Time
}

// note records that a caller was seen at an origin.
func (a *acquaintances) note(origin, caller string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.origins == nil || len(a.origins) > maxOrigins {
		a.origins = map[string]map[string]time.Time{} // forgetting is harmless
	}
	seen := a.origins[origin]
	if seen == nil {
		seen = map[string]time.Time{}
		a.origins[origin] = seen
	}
	now := time.Now()
	seen[caller] = now
	if len(seen) <= maxPerOrigin {
		return
	}
	oldest := caller
	for c, at := range seen {
		if at.Before(seen[oldest]) {
			oldest = c
		}
	}
	delete(seen, oldest)
}

// of lists the callers seen at an origin, the latest first.
func (a *acquaintances) of(origin string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	seen := a.origins[origin]
	var out []string
	for c, at := range seen {
		if time.Since(at) > acquaintanceFor {
			delete(seen, c)
			continue
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(x, y string) int { return seen[y].Compare(seen[x]) })
	return out
}

// namings remember the job that each caller named last in a delete.
type namings struct {
	mu    sync.Mutex
	named map[string]naming
}

type naming struct {
	id string
	at time.Time
}

func (n *namings) note(caller, id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.named == nil || len(n.named) > maxOrigins {
		n.named = map[string]naming{}
	}
	n.named[caller] = naming{id, time.Now()}
}

// recent is what the caller named in the last seconds, or "".
func (n *namings) recent(caller string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if last, ok := n.named[caller]; ok && time.Since(last.at) < namedFor {
		return last.id
	}
	return ""
}

// callersOf are the names under which jobs are the asker's own: one where a
// login or a client id says who asks, else everyone who has posted from there.
func (h *Hub) callersOf(a asker) []string {
	if a.login || a.client != "" {
		return []string{a.caller()}
	}
	// Who posts without a client id is known at his origin, too: once is enough,
	// for these are counted.
	self := a.caller()
	others := slices.DeleteFunc(h.known.of(a.origin), func(c string) bool { return c == self })
	return append([]string{self}, others...)
}
