package gossip

import (
	"context"
	"sync"
)

// maxInbox bounds the reports that wait to be handled. Reports are repeated, so
// the oldest are the ones to lose.
const maxInbox = 1024

// inbox takes what memberlist delivers and hands it on in its own goroutine.
// memberlist calls from the goroutine that also keeps the membership: a
// handler that waits there would make live members look dead.
type inbox struct {
	mu      sync.Mutex
	events  []Event
	reports [][]byte
	dropped int
	wake    chan struct{}
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

func (b *inbox) event(e Event) {
	b.mu.Lock()
	b.events = append(b.events, e)
	b.mu.Unlock()
	b.signal()
}

// report takes a message; data must not change afterwards.
func (b *inbox) report(data []byte) {
	b.mu.Lock()
	if len(b.reports) >= maxInbox {
		b.reports = b.reports[1:]
		b.dropped++
	}
	b.reports = append(b.reports, data)
	b.mu.Unlock()
	b.signal()
}

func (b *inbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// take empties the inbox.
func (b *inbox) take() (events []Event, reports [][]byte, dropped int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	events, reports, dropped = b.events, b.reports, b.dropped
	b.events, b.reports, b.dropped = nil, nil, 0
	return events, reports, dropped
}

// run hands on until ctx ends. Members come before reports: a report of an
// agent that left a moment ago must not make it look alive.
func (b *inbox) run(ctx context.Context, event func(Event), report func([]byte), dropped func(int)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.wake:
		}
		events, reports, lost := b.take()
		for _, e := range events {
			event(e)
		}
		for _, r := range reports {
			report(r)
		}
		if lost > 0 {
			dropped(lost)
		}
	}
}
