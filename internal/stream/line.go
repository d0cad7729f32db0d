package stream

import (
	"slices"
	"sync/atomic"
	"time"
)

// line orders the stream of one client: it decides what the socket is sent, and
// what is kept for later. It is a plain state machine without goroutines, clock or
// locks; the same calls always produce the same output.
type line struct {
	lists  lists
	to     outlet
	buffer buffer
	// numbers provides the ids of sequences; nil if there are no other hubs.
	numbers *atomic.Uint64
	// pongs means that the client has answered a probe before: it is one that does.
	pongs bool
	// cuts counts logs that were shortened or dropped to save memory.
	cuts int
	// unheld are the jobs whose ends were dropped to save memory after they had gone to the socket:
	// the client must not be sent them again.
	unheld []string
}

// sequence is everything known about one prompt's messages.
type sequence struct {
	prompt string
	fence  int64
	// id identifies the sequence within this hub.
	id uint64
	// job is the hubs' key of the job; empty if unknown.
	job string
	// at is when it began, in Unix milliseconds. Running sequences are ordered by
	// it.
	at int64
	// remote is set for a run of another hub; nil for a run of this one.
	remote *remoteRun
	count  uint64 // messages so far
	over   bool
	// counted means that its end has told the number of the caller's jobs.
	counted bool
	// open means that its messages go to the client now, or did before the socket
	// was lost.
	open bool
	// mark is set once all of it was sent: a pong to the ping with that number
	// confirms it.
	mark uint64
	// told means that its end was written to a socket: the client has probably read
	// it, though it has not confirmed it.
	told bool
	// probe is the number of the ping before its first message, on the newest socket that was sent
	// any. The others are about that socket: read means that the pong has come, so the client was
	// reading; toldHere that the end was written; closed that the client then closed it.
	probe                  uint64
	read, toldHere, closed bool
	node                   string // the one that is executing
	log                    log
}

// item is one task for a socket: send a frame, send the status that precedes the
// end of a prompt, or ask the client to confirm everything before it. A socket
// handles its items in order.
type item struct {
	of     *sequence // the item's sequence; nil where it does not matter
	frame  *frame
	status bool
	mark   uint64
	job    string // that of a frame; empty for one that is written in any case
	closes bool   // the frame is the job's last
	// probe asks whether the client reads, before the messages of a sequence.
	probe uint64
	// tells is set on a frame of a sequence's end: the mark of that sequence. For
	// forwarders it is set on the mark of a sequence that was told to a client that
	// was reading.
	tells   uint64
	control control // for forwarders only, as are floor and jobs
	floor   uint64
	jobs    []string
	at      time.Time // when a socket was given it
}

// begin adds a sequence whose prompt has started to execute. The same prompt and
// fence return the existing sequence, because an instance may report a start twice.
// A different fence is a different sequence even for the same prompt, because two
// jobs may have the same id.
func (l *line) begin(prompt string, fence int64) *sequence {
	for _, q := range l.lists.running {
		if q.prompt == prompt && q.fence == fence {
			return q
		}
	}
	q := &sequence{prompt: prompt, fence: fence, id: next(l.numbers)}
	l.lists.running = append(l.lists.running, q)
	l.advance(false)
	return q
}

// send adds a message to a running sequence.
func (l *line) send(q *sequence, m Message) {
	if q.over {
		return
	}
	f := l.buffer.add(q, m, false)
	if q.open {
		l.to.emit(item{of: q, frame: f})
	}
	l.fit()
}

// end closes a sequence with its end messages.
func (l *line) end(q *sequence, msgs []Message) {
	if q.over {
		return
	}
	q.over = true
	l.lists.running = without(l.lists.running, q)
	l.finish(q, msgs)
}

// ended adds a sequence that is already complete.
func (l *line) ended(a Attempt, msgs []Message) {
	l.finish(&sequence{prompt: a.Prompt, job: a.Job, fence: a.Fence, id: next(l.numbers), over: true}, msgs)
}

func (l *line) finish(q *sequence, msgs []Message) {
	if q.open {
		l.to.stamp(q)
	}
	for _, m := range msgs {
		f := l.buffer.add(q, m, true)
		if q.open {
			l.to.emit(item{of: q, frame: f, tells: q.mark})
		}
	}
	if q.open {
		l.lists.sent = append(l.lists.sent, q)
		l.to.seal(q)
	} else {
		l.lists.waiting = append(l.lists.waiting, q)
	}
	l.advance(false)
	l.fit()
}

// lose removes a running sequence without telling the client: the next run of the
// prompt begins a new one.
func (l *line) lose(q *sequence) {
	if q.over {
		return
	}
	q.over = true
	l.lists.running = without(l.lists.running, q)
	l.buffer.free(q)
	if l.to.forwarding {
		l.to.emit(item{of: q, control: controlLost})
	}
	l.advance(false)
}

// attach gives the line a socket, replacing any other. Everything that the client
// has not confirmed is sent again from its start, in the same order as before.
func (l *line) attach(out func(item), live bool) {
	l.to.forwarding = false
	l.start(out, live)
}

// forward gives the line a forwarder to the hub that owns the client. Everything
// goes there at once; that hub holds and orders it.
func (l *line) forward(out func(item)) {
	l.to.forwarding = true
	l.start(out, true)
}

func (l *line) start(out func(item), live bool) {
	l.to.out, l.to.live = out, live
	for _, q := range l.lists.sent {
		l.to.repeat(q)
	}
	opened := false
	for _, q := range l.lists.running {
		if !q.open {
			continue
		}
		if opened && !live {
			q.open = false // it was one of several open ones on a live socket
			continue
		}
		opened = true
		l.to.play(q, true)
	}
	l.advance(true)
}

// detach removes the socket. What the client has not confirmed keeps its mark,
// because a receipt may still arrive.
func (l *line) detach() { l.to.out = nil }

// recall removes the forwarder. That says nothing about what the client was shown, so running
// sequences have to be opened again.
func (l *line) recall() {
	l.detach()
	l.to.forwarding = false
	for _, q := range l.lists.running {
		q.open = false
	}
}

// forget drops what is kept for a client that did not come back: ended sequences
// entirely, and all but the current state of running ones.
func (l *line) forget() {
	for _, q := range slices.Concat(l.lists.waiting, l.lists.sent) {
		l.buffer.free(q)
	}
	l.lists.waiting, l.lists.sent = nil, nil
	for _, q := range l.lists.running {
		l.buffer.shorten(q, last)
	}
}

// advance opens every sequence that may be opened: ended ones first, then the
// running one that began first. back means that the client has just (re)connected.
func (l *line) advance(back bool) {
	if l.to.out == nil {
		return
	}
	if !l.to.live && slices.ContainsFunc(l.lists.running, func(q *sequence) bool { return q.open }) {
		return
	}
	waiting := l.lists.waiting
	l.lists.waiting = nil
	for _, q := range waiting {
		q.open = true
		l.lists.sent = append(l.lists.sent, q)
		l.to.repeat(q)
	}
	for _, q := range l.lists.running {
		if q.open {
			continue
		}
		q.open = true
		l.to.play(q, back)
		if !l.to.live {
			return
		}
	}
}

// fit shrinks the line until it is within its memory limit, which is small while
// its tenant keeps too much. It first drops what the client has probably seen, then
// reduces the detail of the largest log.
func (l *line) fit() {
	for l.buffer.memory > l.buffer.limits.hold || l.buffer.memory > smallLine && l.buffer.limits.ledger.pressed() {
		l.cuts++
		if l.to.out != nil && len(l.lists.sent) > 0 {
			if !l.to.forwarding {
				l.unheld = append(l.unheld, l.lists.sent[0].job)
			}
			l.buffer.free(l.lists.sent[0])
			l.lists.sent = l.lists.sent[1:]
			continue
		}
		if q := l.lists.largest(whole); q != nil {
			l.buffer.shorten(q, short)
			continue
		}
		if q := l.lists.largest(short); q != nil {
			l.buffer.shorten(q, last)
			continue
		}
		if len(l.lists.waiting) == 0 {
			return // only a few messages of each running prompt are left
		}
		l.buffer.free(l.lists.waiting[0])
		l.lists.waiting = l.lists.waiting[1:]
	}
}

// drop forgets sequences without telling the client.
func (l *line) drop(which func(*sequence) bool) {
	drop := func(q *sequence) bool {
		if !which(q) {
			return false
		}
		q.over = true
		l.buffer.free(q)
		return true
	}
	l.lists.running = slices.DeleteFunc(l.lists.running, drop)
	l.lists.waiting = slices.DeleteFunc(l.lists.waiting, drop)
	l.lists.sent = slices.DeleteFunc(l.lists.sent, drop)
	l.advance(false)
}

// next returns the id of a new sequence.
func next(numbers *atomic.Uint64) uint64 {
	if numbers == nil {
		return 0
	}
	return numbers.Add(1)
}

func without(list []*sequence, q *sequence) []*sequence {
	return slices.DeleteFunc(list, func(other *sequence) bool { return other == q })
}
