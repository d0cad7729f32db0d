package stream

import (
	"slices"
	"sync/atomic"
	"time"
)

// line orders the stream of one client: it decides what the socket is sent, and
// what is kept for later. It is a plain state machine without goroutines, clock or
// locks; the same calls always produce the same output.
//
// A sequence is in one of three lists: running (one sequence is open, the others
// are held), waiting (it ended while another was open), or sent (the client has not
// confirmed it yet).
//
// Many methods: each method is one event or one question of a single state machine,
// whose lists are consistent only as a whole.
type line struct {
	limits lineLimits
	// out receives what goes to the socket; nil while there is none.
	out func(item)
	// live means that events are interleaved: every sequence is open.
	live bool
	// forwarding means that out leads to another hub, which has the socket.
	forwarding bool
	// numbers provides the ids of sequences; nil if there are no other hubs.
	numbers *atomic.Uint64

	running []*sequence // in the order in which they began
	waiting []*sequence // in the order in which they ended
	sent    []*sequence // in the order in which they are (to be) sent
	mark    uint64      // the last one used
	probe   uint64      // the last one used
	// pongs means that the client has answered a probe before: it is one that does.
	pongs bool

	memory, results int64 // bytes kept by all logs
	// cuts counts logs that were shortened or dropped to save memory; spillErr is
	// the last failure to write one to disk.
	cuts     int
	spillErr error
	// unheld are the jobs whose ends were dropped to save memory after they had gone to the socket:
	// the client must not be sent them again.
	unheld []string
}

// lineLimits are bounds in bytes, see [Options].
type lineLimits struct {
	hold, spill int64
	spillDir    string
	ledger      *ledger // of the tenant; nil counts nothing
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
	for _, q := range l.running {
		if q.prompt == prompt && q.fence == fence {
			return q
		}
	}
	q := &sequence{prompt: prompt, fence: fence, id: l.number()}
	l.running = append(l.running, q)
	l.advance(false)
	return q
}

// number returns the id of a new sequence.
func (l *line) number() uint64 {
	if l.numbers == nil {
		return 0
	}
	return l.numbers.Add(1)
}

// send adds a message to a running sequence.
func (l *line) send(q *sequence, m Message) {
	if q.over {
		return
	}
	f := l.add(q, m, false)
	if q.open {
		l.emit(item{of: q, frame: f})
	}
	l.fit()
}

// end closes a sequence with its end messages.
func (l *line) end(q *sequence, msgs []Message) {
	if q.over {
		return
	}
	q.over = true
	l.running = without(l.running, q)
	l.finish(q, msgs)
}

// ended adds a sequence that is already complete.
func (l *line) ended(a Attempt, msgs []Message) {
	l.finish(&sequence{prompt: a.Prompt, job: a.Job, fence: a.Fence, id: l.number(), over: true}, msgs)
}

func (l *line) finish(q *sequence, msgs []Message) {
	if q.open {
		l.stamp(q)
	}
	for _, m := range msgs {
		f := l.add(q, m, true)
		if q.open {
			l.emit(item{of: q, frame: f, tells: q.mark})
		}
	}
	if q.open {
		l.sent = append(l.sent, q)
		l.seal(q)
	} else {
		l.waiting = append(l.waiting, q)
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
	l.running = without(l.running, q)
	l.free(q)
	if l.forwarding {
		l.emit(item{of: q, control: controlLost})
	}
	l.advance(false)
}

// attach gives the line a socket, replacing any other. Everything that the client
// has not confirmed is sent again from its start, in the same order as before.
func (l *line) attach(out func(item), live bool) {
	l.forwarding = false
	l.start(out, live)
}

// forward gives the line a forwarder to the hub that owns the client. Everything
// goes there at once; that hub holds and orders it.
func (l *line) forward(out func(item)) {
	l.forwarding = true
	l.start(out, true)
}

func (l *line) start(out func(item), live bool) {
	l.out, l.live = out, live
	for _, q := range l.sent {
		l.repeat(q)
	}
	opened := false
	for _, q := range l.running {
		if !q.open {
			continue
		}
		if opened && !live {
			q.open = false // it was one of several open ones on a live socket
			continue
		}
		opened = true
		l.play(q, true)
	}
	l.advance(true)
}

// detach removes the socket. What the client has not confirmed keeps its mark,
// because a receipt may still arrive.
func (l *line) detach() { l.out = nil }

// recall removes the forwarder. That says nothing about what the client was shown, so running
// sequences have to be opened again.
func (l *line) recall() {
	l.detach()
	l.forwarding = false
	for _, q := range l.running {
		q.open = false
	}
}

// forget drops what is kept for a client that did not come back: ended sequences
// entirely, and all but the current state of running ones.
func (l *line) forget() {
	for _, q := range slices.Concat(l.waiting, l.sent) {
		l.free(q)
	}
	l.waiting, l.sent = nil, nil
	for _, q := range l.running {
		l.shorten(q, last)
	}
}

// clear drops everything.
func (l *line) clear() {
	l.forget()
	for _, q := range l.running {
		q.over = true
		l.free(q)
	}
	l.running, l.out = nil, nil
}

// empty reports whether nothing is kept.
func (l *line) empty() bool { return len(l.running)+len(l.waiting)+len(l.sent) == 0 }

// advance opens every sequence that may be opened: ended ones first, then the
// running one that began first. back means that the client has just (re)connected.
func (l *line) advance(back bool) {
	if l.out == nil {
		return
	}
	if !l.live && slices.ContainsFunc(l.running, func(q *sequence) bool { return q.open }) {
		return
	}
	waiting := l.waiting
	l.waiting = nil
	for _, q := range waiting {
		q.open = true
		l.sent = append(l.sent, q)
		l.repeat(q)
	}
	for _, q := range l.running {
		if q.open {
			continue
		}
		q.open = true
		l.play(q, back)
		if !l.live {
			return
		}
	}
}

// play sends what is kept of a sequence. A client that returns after the replay
// window is told what ComfyUI would tell it: the current state of the run.
func (l *line) play(q *sequence, back bool) {
	l.ask(q)
	if back && q.log.detail == last {
		for _, k := range []Kind{Executing, ProgressState} {
			if f := q.log.latest(k); f != nil {
				l.emit(item{of: q, frame: f})
			}
		}
		return
	}
	for f := range q.log.each {
		it := item{of: q, frame: f}
		if f.final {
			it.tells = q.mark
		}
		l.emit(it)
	}
}

// repeat sends a complete sequence.
func (l *line) repeat(q *sequence) {
	l.stamp(q)
	l.play(q, false)
	l.seal(q)
}

// stamp gives a sequence its mark, before its end is sent to the socket.
func (l *line) stamp(q *sequence) {
	if l.out == nil || l.forwarding { // the hub that has the socket sets its own
		return
	}
	l.mark++
	q.mark = l.mark
}

// seal follows the last message of a sequence with the prompt's end and a request
// for a receipt.
func (l *line) seal(q *sequence) {
	if l.out == nil {
		return
	}
	if l.forwarding {
		it := item{of: q, mark: 1}
		if q.toldHere && q.read {
			it.tells = 1
		}
		l.emit(it)
		return
	}
	l.emit(item{of: q, status: true})
	l.emit(item{of: q, frame: executingNull(q.prompt), tells: q.mark, closes: true})
	l.emit(item{of: q, mark: q.mark})
}

func (l *line) emit(it item) {
	if l.out != nil {
		if it.of != nil {
			it.job = it.of.job
		}
		l.out(it)
	}
}

func without(list []*sequence, q *sequence) []*sequence {
	return slices.DeleteFunc(list, func(other *sequence) bool { return other == q })
}
