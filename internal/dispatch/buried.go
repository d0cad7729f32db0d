package dispatch

import "sync"

// buried lists silent hubs that no longer hold any run, until the queue is told.
type buried struct {
	mu   sync.Mutex
	hubs []string
}

func (b *buried) add(hub string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hubs = append(b.hubs, hub)
}

// take returns them and empties the list.
func (b *buried) take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	hubs := b.hubs
	b.hubs = nil
	return hubs
}
