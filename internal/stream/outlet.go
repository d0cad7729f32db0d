package stream

// outlet is where the messages of a client go: each sequence whole, with a question before it
// whether the client reads, and after its end a request for a receipt.
type outlet struct {
	// out receives what goes to the socket; nil while there is none.
	out func(item)
	// live means that events are interleaved: every sequence is open.
	live bool
	// forwarding means that out leads to another hub, which has the socket.
	forwarding bool
	mark       uint64 // the last one used
	probe      uint64 // the last one used
}

// play sends what is kept of a sequence. A client that returns after the replay
// window is told what ComfyUI would tell it: the current state of the run.
func (o *outlet) play(q *sequence, back bool) {
	o.ask(q)
	if back && q.log.detail == last {
		for _, k := range []Kind{Executing, ProgressState} {
			if f := q.log.latest(k); f != nil {
				o.emit(item{of: q, frame: f})
			}
		}
		return
	}
	for f := range q.log.each {
		it := item{of: q, frame: f}
		if f.final {
			it.tells = q.mark
		}
		o.emit(it)
	}
}

// repeat sends a complete sequence.
func (o *outlet) repeat(q *sequence) {
	o.stamp(q)
	o.play(q, false)
	o.seal(q)
}

// stamp gives a sequence its mark, before its end is sent to the socket.
func (o *outlet) stamp(q *sequence) {
	if o.out == nil || o.forwarding { // the hub that has the socket sets its own
		return
	}
	o.mark++
	q.mark = o.mark
}

// seal follows the last message of a sequence with the prompt's end and a request
// for a receipt.
func (o *outlet) seal(q *sequence) {
	if o.out == nil {
		return
	}
	if o.forwarding {
		it := item{of: q, mark: 1}
		if q.toldHere && q.read {
			it.tells = 1
		}
		o.emit(it)
		return
	}
	o.emit(item{of: q, status: true})
	o.emit(item{of: q, frame: executingNull(q.prompt), tells: q.mark, closes: true})
	o.emit(item{of: q, mark: q.mark})
}

func (o *outlet) emit(it item) {
	if o.out != nil {
		if it.of != nil {
			it.job = it.of.job
		}
		o.out(it)
	}
}

// ask asks the client for a sign that it is reading, before the messages of a sequence.
func (o *outlet) ask(q *sequence) {
	if o.out == nil || o.forwarding {
		return
	}
	o.probe++
	q.probe, q.read, q.toldHere, q.closed = o.probe, false, false, false
	o.emit(item{probe: q.probe})
}
