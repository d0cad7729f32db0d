package dispatch

import (
	"bytes"
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
	// heldElsewhere: another hub has had the run for a while, and with it the messages.
	heldElsewhere
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
	// workDone: what the hub did for a finished run is done, see meanwhile.
	workDone
	// silence: nothing arrived for as long as next was to wait.
	silence
)

// event is one thing that happened to a run.
type runEvent struct {
	kind  eventKind
	frame comfyui.Frame
	// during is the node that the instance executed when a binary frame came.
	during string
	// gap says that messages before this event were dropped.
	gap  bool
	err  error
	conn *connection
}

// mailbox takes the events of one run in order. Putting never blocks: the
// socket of an instance must be drained whatever the run is doing, because one
// stalled reader stalls every client of that ComfyUI. While a run waits for Redis, previews
// and progress are dropped where there is too much of it; results only if they alone are too
// much.
type mailbox struct {
	mu      sync.Mutex
	events  []runEvent
	size    int           // bytes of the messages
	limit   int           // at which size something is dropped
	gap     bool          // something was dropped that may be missed
	ready   chan struct{} // holds one token while events may be there
	node    string        // which node the instance executes, as far as has arrived
	results []string      // nodes whose pictures are results, not previews
}

// maxMail bounds the messages that wait for one run and may be dropped, in bytes. More than
// maxResults stay only if no results are among them; so much may gather twice before it is
// looked at.
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

// executes returns which node a message begins, if it is `executing`. Such messages are
// short, and the others are many.
func executes(data []byte) (node string, ok bool) {
	if len(data) > 4096 || !bytes.Contains(data, []byte(comfyui.TypeExecuting)) {
		return "", false
	}
	m, ok := comfyui.ParseMessage(data)
	return m.Shows(), ok && m.Type == comfyui.TypeExecuting
}

// thin drops the oldest messages that may be dropped until half of the room is free. What
// begins or ends something always stays, and so does the newest message: alone it may be
// larger than the room.
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
	m.limit = max(maxMail, 2*m.size) // to look at what must stay each time would take long
}

// worth says how much a message matters to a client that is late.
type worth int

const (
	worthLittle worth = iota // the next one of its kind says more
	worthSome                // of a custom node
	worthMuch                // a result that exists nowhere else
	worthAll                 // a part of the run
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
