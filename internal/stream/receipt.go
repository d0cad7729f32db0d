package stream

import (
	"errors"
	"io"
	"slices"
	"syscall"
	"time"

	"github.com/coder/websocket"
)

// This file handles receipts: evidence that a client has read the whole sequence of
// a prompt. A pong is the best evidence, but clients that open a socket for each
// prompt never read the ping: they read up to the end, close the socket and go on.
// They must not be sent the last prompt again. Their receipts are an orderly close
// of the socket, and requests that only make sense after an end. Such a receipt
// counts only for a sequence whose end was written to a socket.
//
// What is written to a connection that has just died, or that somebody holds up, looks as if it had
// been sent, and some clients post several prompts before they read anything. So for a client that
// answers pings, a close or a POST counts only if it has answered the ping before the sequence. For
// a client that has not answered any yet, a POST counts if the socket was closed right after it was
// told the end: somebody holding up the connection would hold up its close too.
//
// Only a POST to the hub that has the client's stream counts, and only at the time when it comes.
// What a hub hears of a POST to another one comes late: the client may have made it before it was
// told the end, started to read since, and lost its socket halfway.
//
// GET /view is not a receipt: many clients fetch a picture as soon as they are told of it, and may
// be cut off before they read the end.

// receiptGrace is how long a new socket waits before it is sent again what an
// earlier one was sent completely. The receipt may be on its way; or it may be the
// POST of the next prompt, which many clients send once their socket is open.
const receiptGrace = 300 * time.Millisecond

// doneWith are the codes of the close frames that a client sends when it is done.
var doneWith = []websocket.StatusCode{websocket.StatusNormalClosure, websocket.StatusGoingAway, websocket.StatusNoStatusRcvd}

// leftInOrder reports whether a socket ended with the close frame of a client that
// was done. A connection without one was cut, even if it ended with a FIN: proxies
// close connections that way when their client has vanished.
func leftInOrder(err error) bool {
	return slices.Contains(doneWith, websocket.CloseStatus(err))
}

// cutByClient reports whether it was the client's side that ended a socket without a close frame.
func cutByClient(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// promptly is how soon after an end a client that has read it closes its socket, if it opens one
// per prompt.
const promptly = 2 * time.Second

// confirm records that everything up to mark was received. It returns the sequences
// that were received completely.
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
		l.buffer.free(q)
		return true
	}
	l.lists.sent = slices.DeleteFunc(l.lists.sent, drop)
	l.lists.waiting = slices.DeleteFunc(l.lists.waiting, drop) // told at another hub
	return received
}

// closedInOrder is confirm for a close frame.
func (l *line) closedInOrder(mark uint64) (received []*sequence) {
	return l.take(func(q *sequence) bool { return q.mark != 0 && q.mark <= mark && (q.read || !l.pongs) })
}

// reads records that the client has read up to a probe. A POST that came before is not a receipt:
// the client may begin to read only now.
func (l *line) reads(probe uint64) {
	l.pongs = l.pongs || probe > 0
	for _, list := range [][]*sequence{l.lists.running, l.lists.sent} {
		for _, q := range list {
			q.read = q.read || q.probe != 0 && q.probe <= probe
		}
	}
}

// postedNext takes the sequences that the client had been told about before it posted a prompt, if
// it was reading. A client with other prompts in progress posts without waiting for ends, so its
// post proves nothing.
func (l *line) postedNext(posted string) (received []*sequence) {
	other := func(q *sequence) bool { return q.prompt != posted }
	if slices.ContainsFunc(l.lists.running, other) || slices.ContainsFunc(l.lists.waiting, func(q *sequence) bool { return !q.told }) {
		return nil
	}
	return l.take(func(q *sequence) bool {
		return q.toldHere && other(q) && (q.read || !l.pongs && q.closed)
	})
}

// connect attaches a new socket to the line, after a delay if a receipt may still arrive.
func (c *client) connect(w *socket, live bool) {
	c.line.detach()
	c.live = live
	if !c.line.lists.doubtful() {
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

// waits reports whether the socket is waiting for receipts of what an earlier one was sent.
func (c *client) waits() bool { return c.socket != nil && c.line.to.out == nil }

// noteWritten records what the client's socket has written.
func (c *client) noteWritten() {
	if c.socket != nil {
		_, told, _ := c.socket.marks()
		c.line.lists.written(told)
	}
}

// marks returns the newest mark of a sequence that was written completely, the newest of one whose end
// was written, and how long ago that was.
func (w *socket) marks() (written, told uint64, since time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mark, w.told, time.Since(w.toldAt)
}
