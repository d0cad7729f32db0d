package dispatch

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// eventKind says what happened to a run.
type eventKind int

const (
	// frameArrived: the instance sent a message.
	frameArrived eventKind = iota
	// socketUp: the instance's socket is open again after a gap.
	socketUp
	// lookAsked: the instance is to be asked now what it does with the run.
	lookAsked
	// socketDown: the socket is gone; the event's err says how.
	socketDown
	// cancelAsked: the client wants the run to end.
	cancelAsked
	// withdrawAsked: as cancelAsked, and nobody is told of the run any more.
	withdrawAsked
	// takeBackAsked: the run waits at its instance, and has no reason to any more.
	takeBackAsked
	// evictAsked: the run is to leave its instance, also if it has begun.
	evictAsked
	// movedUp: the run before this one is over at the instance, so that this one is
	// the next to begin.
	movedUp
	// leaseLost: another hub holds the job now.
	leaseLost
	// moved: the instance is reached at another address now, over the event's
	// connection.
	moved
	// hubFailed: a goroutine that works for the run has panicked.
	hubFailed
	// filesSettled: the hub has the files of the finished run, or will never have them.
	filesSettled
	// silence: nothing arrived for as long as next was to wait.
	silence
)

// event is one thing that happened to a run.
type runEvent struct {
	kind  eventKind
	frame comfyui.Frame
	err   error
	conn  *connection
}

// mailbox takes the events of one run in order. Putting never blocks: the
// socket of an instance must be drained whatever the run is doing, because one
// stalled reader stalls every client of that ComfyUI.
type mailbox struct {
	mu     sync.Mutex
	events []runEvent
	ready  chan struct{} // holds one token while events may be there
}

func newMailbox() *mailbox { return &mailbox{ready: make(chan struct{}, 1)} }

func (m *mailbox) put(e runEvent) {
	m.mu.Lock()
	m.events = append(m.events, e)
	m.mu.Unlock()
	select {
	case m.ready <- struct{}{}:
	default:
	}
}

// hasFrame reports whether a message of the instance is there to take.
func (m *mailbox) hasFrame() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.events, func(e runEvent) bool { return e.kind == frameArrived })
}

// next waits for an event; after quiet without one it returns silence.
func (m *mailbox) next(ctx context.Context, quiet time.Duration) (runEvent, error) {
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for {
		m.mu.Lock()
		if len(m.events) > 0 {
			e := m.events[0]
			m.events[0] = runEvent{}
			m.events = m.events[1:]
			m.mu.Unlock()
			return e, nil
		}
		m.mu.Unlock()
		select {
		case <-m.ready:
		case <-timer.C:
			return runEvent{kind: silence}, nil
		case <-ctx.Done():
			return runEvent{}, ctx.Err()
		}
	}
}
