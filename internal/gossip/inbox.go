package gossip

import (
	"context"
	"sync"
)

// maxInbox bounds the messages that wait to be handled. Beyond it the oldest are
// dropped, because reports are repeated.
const maxInbox = 1024

// inbox queues what memberlist delivers and hands it on in its own goroutine.
// memberlist calls from the goroutine that also maintains the membership: a handler
// that blocks there would make live members look dead.
type inbox struct {
	mu       sync.Mutex
	events   []Event
	messages [][]byte
	dropped  int
	wake     chan struct{}
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

func (b *inbox) event(e Event) {
	b.mu.Lock()
	b.events = append(b.events, e)
	b.mu.Unlock()
	b.signal()
}

// message queues a message; data must not change afterwards.
func (b *inbox) message(data []byte) {
	b.mu.Lock()
	if len(b.messages) >= maxInbox {
		b.messages = b.messages[1:]
		b.dropped++
	}
	b.messages = append(b.messages, data)
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
func (b *inbox) take() (events []Event, messages [][]byte, dropped int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	events, messages, dropped = b.events, b.messages, b.dropped
	b.events, b.messages, b.dropped = nil, nil, 0
	return events, messages, dropped
}

// run hands on what arrives until ctx ends. Members come before reports: a report
// of an agent that has just left must not make it look alive.
func (b *inbox) run(ctx context.Context, event func(Event), message func([]byte), dropped func(int)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.wake:
		}
		events, messages, lost := b.take()
		for _, e := range events {
			event(e)
		}
		for _, m := range messages {
			message(m)
		}
		if lost > 0 {
			dropped(lost)
		}
	}
}
