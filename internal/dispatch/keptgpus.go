package dispatch

import (
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/schedule"
)

// keptFor is how long a GPU counts as kept free after the look that decided so. The next look comes
// sooner.
const keptFor = 2*safetyTick + stuckAfter

// keptGPUs says until when GPUs are kept free for a job that is waiting for their memory. The zero
// value has none.
type keptGPUs struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// add adds GPUs. The idle instances that use them get no more jobs in this look.
func (k *keptGPUs) add(names []string, idle []schedule.Idle, now time.Time) {
	if len(names) == 0 {
		return
	}
	k.mu.Lock()
	for name, until := range k.until {
		if now.After(until) {
			delete(k.until, name)
		}
	}
	if k.until == nil {
		k.until = map[string]time.Time{}
	}
	for _, name := range names {
		k.until[name] = now.Add(keptFor)
	}
	k.mu.Unlock()
	for _, i := range idle {
		k.mark(i.GPU, now)
	}
}

// mark marks a GPU that is kept free.
func (k *keptGPUs) mark(g *schedule.GPU, now time.Time) {
	if g == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	until, kept := k.until[g.Name]
	g.Kept = kept && now.Before(until)
}
