package stream

import (
	"slices"
	"sync/atomic"
)

// line is the serial order of one client's stream: what its socket is sent,
// and what is kept for later. It is a plain state machine without goroutines,
// clock or locks; the same calls always give the same output.
//
// A sequence is in one of these places: running (one of them is open, the
// others are held), waiting (it ended while another was open), or sent (the
// client has not confirmed it yet).
type line struct {
	limits lineLimits
	// out takes what goes to the socket; nil while there is none.
	out func(item)
	// live interleaves: every sequence is open.
	live bool
	// courier tells that out leads to another hub, which has the socket.
	courier bool
	// numbers gives sequences their ids; nil where no other hub is told of them.
	numbers *atomic.Uint64

	running []*sequence // in order of their begin
	waiting []*sequence // in order of their end
	sent    []*sequence // in the order in which they are (to be) sent
	mark    uint64      // the last one given out

	memory, results int64 // bytes kept by all logs
	// cuts counts logs that were shortened or dropped for want of memory,
	// and spillErr is the last failure to write one to disk.
	cuts     int
	spillErr error
}

// lineLimits are bounds in bytes, see [Options].
type lineLimits struct {
	hold, spill int64
	spillDir    string
	ledger      *ledger // of the tenant; nil counts nothing
}

// sequence is all that is known of one prompt's messages.
type sequence struct {
	prompt string
	fence  int64
	// id is the sequence's among all of this hub.
	id uint64
	// job is the hubs' key of the prompt's job, empty where it is not known.
	job string
	// at is when it began, in Unix milliseconds: it orders what runs.
	at int64
	// foreign is what another hub's run is known by; nil for a run of this one.
	foreign *foreignRun
	count   uint64 // of its messages so far
	over    bool
	// open means that its messages go to the client now, or went before the
	// socket was lost.
	open bool
	// mark is set when all of it was sent: a pong to the ping of that number
	// confirms it.
	mark uint64
	// told means that its end was written to a socket: the client may well have
	// read it, though it has not said so.
	told bool
	node string // executing
	log  log
}

// item is one thing for a socket to do, in order: to send a frame, to send the
// status that precedes the end of a prompt, or to ask the client to confirm
// all that went before.
type item struct {
	of     *sequence // whose it is; nil where that does not matter
	frame  *frame
	status bool
	mark   uint64
	// tells is the mark of the sequence of whose end the frame is a part. For
	// couriers it goes with the mark of a sequence that was told.
	tells uint64
	// note is for couriers only; floor and jobs go with it.
	note  note
	floor uint64
	jobs  []string
}

// begin adds a sequence that starts to execute. The same prompt and fence give
// the sequence that is there: an instance may report its start twice. Another
// fence is another sequence even for the same prompt, because two jobs may
// have one id.
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

// number is the id of a new sequence.
func (l *line) number() uint64 {
	if l.numbers == nil {
		return 0
	}
	return l.numbers.Add(1)
}

// send adds a message of a running sequence.
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

// lose gives up the place of a running sequence, without a word to the client:
// the next run of the prompt begins a new one.
func (l *line) lose(q *sequence) {
	if q.over {
		return
	}
	q.over = true
	l.running = without(l.running, q)
	l.free(q)
	if l.courier {
		l.emit(item{of: q, note: noteLost})
	}
	l.advance(false)
}

// replay sends the sequence of an ended prompt again, if it is still known.
func (l *line) replay(prompt string) bool {
	of := func(q *sequence) bool { return q.prompt == prompt }
	if slices.ContainsFunc(l.waiting, of) || slices.ContainsFunc(l.running, of) {
		return true // it is still to come
	}
	i := slices.IndexFunc(l.sent, of)
	if i < 0 {
		return false
	}
	q := l.sent[i]
	l.sent = slices.Delete(l.sent, i, i+1)
	q.open, q.mark = false, 0
	l.waiting = append(l.waiting, q)
	l.advance(false)
	return true
}

// attach gives the line a socket, in place of any other. Everything that the
// client has not confirmed is sent again from its start, in the order in
// which it was sent before.
func (l *line) attach(out func(item), live bool) {
	l.courier = false
	l.start(out, live)
}

// forward gives the line a courier to the hub that has the client's socket.
// Everything goes there at once; that hub holds and orders.
func (l *line) forward(out func(item)) {
	l.courier = true
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
			q.open = false // it was open beside others, on a live socket
			continue
		}
		opened = true
		l.play(q, true)
	}
	l.advance(true)
}

// detach takes the socket away. What it has not confirmed stays, with its
// mark: a receipt may come late.
func (l *line) detach() { l.out = nil }

// recall takes the courier away. Its end says nothing of what the client was
// shown, so what runs takes its turn anew.
func (l *line) recall() {
	l.detach()
	l.courier = false
	for _, q := range l.running {
		q.open = false
	}
}

// forget drops what is kept for a client that did not come back: ended
// sequences, and of running ones all but their present state.
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

// showing is the running prompt whose messages the socket is sent; with
// several (live) the one that began first.
func (l *line) showing() (prompt string, ok bool) {
	if l.out == nil {
		return "", false
	}
	for _, q := range l.running {
		if q.open {
			return q.prompt, true
		}
	}
	return "", false
}

// advance opens what may be opened: ended sequences first, then the running
// one that began first. back tells that the client has just come (back).
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

// play sends what is kept of a sequence. A client that is back after the
// replay window is told what ComfyUI would tell it: where the run stands.
func (l *line) play(q *sequence, back bool) {
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
	if l.out == nil || l.courier { // the hub that has the socket makes its own
		return
	}
	l.mark++
	q.mark = l.mark
}

// seal ends a sequence of which all messages went out, and asks for its receipt.
func (l *line) seal(q *sequence) {
	if l.out == nil {
		return
	}
	if l.courier {
		it := item{of: q, mark: 1}
		if q.told {
			it.tells = 1
		}
		l.emit(it)
		return
	}
	l.emit(item{status: true})
	l.emit(item{frame: executingNull(q.prompt), tells: q.mark})
	l.emit(item{of: q, mark: q.mark})
}

func (l *line) emit(it item) {
	if l.out != nil {
		l.out(it)
	}
}

func without(list []*sequence, q *sequence) []*sequence {
	return slices.DeleteFunc(list, func(other *sequence) bool { return other == q })
}
