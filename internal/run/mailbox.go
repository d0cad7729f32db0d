package run

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/instance"
)

// eventKind says what happened to a run.
type eventKind int

const (
	// frameArrived: the instance sent a message.
	frameArrived eventKind = iota
	// socketUp: the instance's socket is open again after a gap.
	socketUp
	// lookAsked: the instance is to be asked now what it is doing with the run.
	lookAsked
	// heldElsewhere: another hub has had the run for a while, and its messages with it.
	heldElsewhere
	// socketDown: the socket is gone; the event's err says why.
	socketDown
	// cancelAsked: the client wants the run to end.
	cancelAsked
	// withdrawAsked: as cancelAsked, and nobody is told about the run any more.
	withdrawAsked
	// takeBackAsked: the run is waiting at its instance, and no longer has a reason to.
	takeBackAsked
	// evictAsked: the run is to leave its instance, even if it has begun.
	evictAsked
	// partHeard: a part of the job may have ended.
	partHeard
	// partMoved: a part of the job has said something that the client is to see.
	partMoved
	// movedUp: the run before this one is over on the instance, so this one is the next to begin.
	movedUp
	// idleReported: the instance has reported that it has nothing to do.
	idleReported
	// leaseLost: another hub holds the job now.
	leaseLost
	// moved: the instance can now be reached at another address, over the event's connection.
	moved
	// hubFailed: a goroutine working for the run has panicked.
	hubFailed
	// workDone: the hub's work for a finished run is done, see meanwhile.
	workDone
	// silence: nothing arrived for as long as next was to wait.
	silence
)

// runEvent is one thing that happened to a run.
type runEvent struct {
	kind  eventKind
	frame comfyui.Frame
	// during is the node that the instance was executing when a binary frame came.
	during string
	// gap says that messages before this event were dropped.
	gap  bool
	err  error
	conn *instance.Link
}

// mailbox takes the events of one run in order. Putting never blocks: the socket of an instance
// must be drained whatever the run is doing, because one stalled reader stalls every client of that
// ComfyUI. If too much piles up while a run waits for Redis, previews and progress are dropped;
// results only if they alone are too much.
type mailbox struct {
	mu      sync.Mutex
	events  []runEvent
	size    int           // bytes of the messages
	limit   int           // size at which something is dropped
	gap     bool          // something that may be missed was dropped
	ready   chan struct{} // holds one token while events may be there
	node    string        // the node that the instance is executing, as far as messages have arrived
	results []string      // nodes whose pictures are results, not previews
}

// maxMail bounds the droppable messages waiting for one run, in bytes. Results may take up to
// maxResults; twice that may pile up before thin looks again.
const (
	maxMail    = 16 << 20
	maxResults = 256 << 20
)

func newMailbox() *mailbox { return &mailbox{limit: maxMail, ready: make(chan struct{}, 1)} }

func (m *mailbox) put(e runEvent) {
	m.mu.Lock()
	if e.frame.Binary {
		e.during = m.node
	} else if node, ok := executes(e.frame.Data); ok {
		m.node = node
	}
	m.events = append(m.events, e)
	if m.size += len(e.frame.Data); m.size > m.limit {
		m.thin()
	}
	m.mu.Unlock()
	select {
	case m.ready <- struct{}{}:
	default:
	}
}

// setResults says which nodes' pictures are results.
func (m *mailbox) setResults(nodes []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.results = nodes
}

// executes returns the node that a message starts, if it is `executing`. Such messages are short,
// and the others are many.
func executes(data []byte) (node string, ok bool) {
	if len(data) > 4096 || !bytes.Contains(data, []byte(comfyui.TypeExecuting)) {
		return "", false
	}
	m, ok := comfyui.ParseMessage(data)
	return m.Shows(), ok && m.Type == comfyui.TypeExecuting
}

// thin drops the oldest droppable messages until half of the room is free. Whatever begins or ends
// something always stays, and so does the newest message: it alone may be larger than the room.
func (m *mailbox) thin() {
	for _, most := range [...]worth{worthLittle, worthSome, worthMuch} {
		enough := maxMail / 2
		if most == worthMuch {
			enough = maxResults
		}
		kept := m.events[:0]
		for i, e := range m.events {
			newest := i == len(m.events)-1
			if m.size > enough && !newest && m.worthOf(e) <= most {
				m.size -= len(e.frame.Data)
				m.gap = m.gap || most > worthLittle
				continue
			}
			kept = append(kept, e)
		}
		clear(m.events[len(kept):])
		m.events = kept
	}
	m.limit = max(maxMail, 2*m.size) // going through what must stay each time would take too long
}

// worth is how much a message matters to a client that is behind.
type worth int

const (
	worthLittle worth = iota // the next one of its kind says more
	worthSome                // of a custom node
	worthMuch                // a result that exists nowhere else
	worthAll                 // part of the run
)

func (m *mailbox) worthOf(e runEvent) worth {
	switch {
	case e.kind != frameArrived:
		return worthAll
	case e.frame.Binary && slices.Contains(m.results, e.during):
		return worthMuch
	case e.frame.Binary:
		return worthLittle
	}
	msg, _ := comfyui.ParseMessage(e.frame.Data)
	switch msg.Type {
	case comfyui.TypeProgress, comfyui.TypeProgressState, comfyui.TypeStatus:
		return worthLittle
	case comfyui.TypeExecutionStart, comfyui.TypeExecutionCached, comfyui.TypeExecuting, comfyui.TypeExecuted,
		comfyui.TypeExecutionSuccess, comfyui.TypeExecutionError, comfyui.TypeExecutionInterrupted:
		return worthAll
	}
	return worthSome
}

// hasFrame reports whether a message from the instance is waiting.
func (m *mailbox) hasFrame() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.events, func(e runEvent) bool { return e.kind == frameArrived })
}

// next waits for an event; if none comes within quiet, it returns silence.
func (m *mailbox) next(ctx context.Context, quiet time.Duration) (runEvent, error) {
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for {
		m.mu.Lock()
		if len(m.events) > 0 {
			e := m.events[0]
			m.events[0] = runEvent{}
			m.events = m.events[1:]
			m.size -= len(e.frame.Data)
			e.gap, m.gap = m.gap, false
			if m.limit = max(maxMail, 2*m.size); len(m.events) == 0 {
				m.events = nil
			}
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
