package stream

import (
	"slices"
	"time"

	"github.com/coder/websocket"
)

// This file is about receipts: what tells that a client has read the whole
// sequence of a prompt. A pong is the best proof, but clients that open a
// socket for each prompt never read the ping: they read up to the end, close
// and go on. They must not be told the last prompt again. Their receipts are
// an orderly close of the socket and requests that only follow an end. Such a
// receipt counts only for a sequence whose end was written to a socket. GET
// /view is none: many clients fetch a picture as soon as they read of it, and
// may be cut off before they read the end.

// receiptGrace is how long a new socket waits before it is told again what an
// earlier one was told in whole: the receipt may be on its way, or it is the
// POST of the next prompt, which many clients send when their socket is open.
const receiptGrace = 300 * time.Millisecond

// doneWith are the codes of close frames that a client sends when it is done.
var doneWith = []websocket.StatusCode{websocket.StatusNormalClosure, websocket.StatusGoingAway, websocket.StatusNoStatusRcvd}

// leftInOrder reports whether a socket ended with a close frame of a client
// that was done. A connection that ends without one was cut, even if it ended
// with a FIN: proxies close so when their client has vanished.
func leftInOrder(err error) bool {
	return slices.Contains(doneWith, websocket.CloseStatus(err))
}

// confirm tells that everything up to a mark was received. It returns the
// sequences that were received whole.
func (l *line) confirm(mark uint64) (received []*sequence) {
	return l.take(func(q *sequence) bool { return q.mark != 0 && q.mark <= mark })
}

// take removes sequences that the client has received.
func (l *line) take(which func(*sequence) bool) (received []*sequence) {
	drop := func(q *sequence) bool {
		if !which(q) {
			return false
		}
		received = append(received, q)
		l.free(q)
		return true
	}
	l.sent = slices.DeleteFunc(l.sent, drop)
	l.waiting = slices.DeleteFunc(l.waiting, drop) // told at another hub
	return received
}

// written notes which sequences a socket has told.
func (l *line) written(mark uint64) {
	for _, q := range l.sent {
		if q.mark != 0 && q.mark <= mark {
			q.told = true
		}
	}
}

// doubtful reports whether something would be told again that the client may
// have read.
func (l *line) doubtful() bool {
	told := func(q *sequence) bool { return q.told }
	return slices.ContainsFunc(l.sent, told) || slices.ContainsFunc(l.waiting, told)
}

// goesOn takes what was told before the client posted a prompt. A client that
// has other prompts under way posts without waiting for ends, so its post
// tells nothing.
func (l *line) goesOn(posted string) (received []*sequence) {
	other := func(q *sequence) bool { return q.prompt != posted }
	if slices.ContainsFunc(l.running, other) || slices.ContainsFunc(l.waiting, func(q *sequence) bool { return !q.told }) {
		return nil
	}
	return l.take(func(q *sequence) bool { return q.told && other(q) })
}

// connect gives a new socket to the line; later, where a receipt may still
// come.
func (c *client) connect(w *socket, live bool) {
	c.line.detach()
	c.live = live
	if !c.line.doubtful() {
		c.line.attach(w.push, live)
		return
	}
	time.AfterFunc(receiptGrace, func() {
		c.change(func(c *client) {
			if c.waits() && c.socket == w {
				c.line.attach(w.push, live)
			}
		})
	})
}

// waits reports whether the socket waits for receipts of what an earlier one
// was told.
func (c *client) waits() bool { return c.socket != nil && c.line.out == nil }

// note takes in what the client's socket has written.
func (c *client) note() {
	if c.socket != nil {
		c.line.written(c.socket.toldMark())
	}
}

// toldMark is the newest mark of whose sequence the end message was written.
func (w *socket) toldMark() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.told
}

// receive takes receipts, by whichever way they came.
func (s *Streams) receive(k Key, which func(*client) []*sequence) {
	var prompts []string
	var home int64
	foreign := map[string][]uint64{}
	s.change(k, false, func(c *client) {
		c.note()
		home = c.home.Number
		received := which(c)
		for _, q := range received {
			prompts = append(prompts, q.prompt)
			c.noteReceived(q.job)
			if r := q.foreign; r != nil {
				r.received = true
				foreign[r.hub] = append(foreign[r.hub], r.id)
			}
		}
		if len(received) > 0 && c.courier != nil {
			// The client has moved on to another hub, which must not tell it again.
			c.courier.push(item{note: noteSynced, floor: c.line.floor(), jobs: slices.Clone(c.recent)})
		}
	})
	s.receipts(k, home, foreign)
	for _, prompt := range prompts {
		s.o.Delivered(k, prompt)
	}
}

// received takes a receipt of all that a socket has written up to a mark. Of
// an older socket it counts only until the newest one is told the same again,
// with new marks.
func (s *Streams) received(k Key, mark uint64) {
	if mark > 0 {
		s.receive(k, func(c *client) []*sequence { return c.line.confirm(mark) })
	}
}

// GoesOn tells that the client has posted a prompt. A client that posts when
// its last prompt has ended has read that end.
func (s *Streams) GoesOn(k Key, posted string) {
	s.receive(k, func(c *client) []*sequence { return c.line.goesOn(posted) })
}

// Fetched tells that one of the clients was answered with the results of ended
// prompts, which is as good as reading their ends from the socket.
func (s *Streams) Fetched(clients []Key, prompts []string) {
	if len(prompts) == 0 {
		return
	}
	for _, k := range clients {
		s.fetched(k, prompts)
	}
	s.tellHomes(clients, prompts)
}

func (s *Streams) fetched(k Key, prompts []string) {
	s.receive(k, func(c *client) []*sequence {
		return c.line.take(func(q *sequence) bool { return q.told && slices.Contains(prompts, q.prompt) })
	})
}
