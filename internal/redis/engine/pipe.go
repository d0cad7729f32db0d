package engine

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pipe returns a connection inside the process whose writes never block.
//
// net.Pipe has no buffer: a client that writes a long pipeline would wait for the
// server, which waits for the client to read the first replies; and a subscriber
// that does not read would stop the whole server, which publishes under its lock.
// Both ends are ours and each request is bounded, so the buffer needs no bound of
// its own.
func pipe() (client, server net.Conn) {
	up, down := newHalf(), newHalf()
	return &pipeEnd{in: down, out: up}, &pipeEnd{in: up, out: down}
}

// half is one direction of a pipe.
type half struct {
	mu       sync.Mutex
	data     []byte
	closed   bool
	deadline time.Time
	// wake is closed and replaced whenever a reader should look again.
	wake chan struct{}
}

func newHalf() *half { return &half{wake: make(chan struct{})} }

// change runs f with the lock held and wakes the readers.
func (h *half) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	close(h.wake)
	h.wake = make(chan struct{})
}

func (h *half) write(p []byte) (n int, err error) {
	h.change(func() {
		if h.closed {
			err = io.ErrClosedPipe
			return
		}
		h.data = append(h.data, p...)
		n = len(p)
	})
	return n, err
}

func (h *half) read(p []byte) (int, error) {
	for {
		h.mu.Lock()
		n := copy(p, h.data)
		h.data = h.data[n:]
		if len(h.data) == 0 {
			h.data = nil // otherwise a drained buffer would keep its largest size
		}
		closed, deadline, wake := h.closed, h.deadline, h.wake
		h.mu.Unlock()
		switch {
		case n > 0 || len(p) == 0:
			return n, nil
		case closed:
			return 0, io.EOF
		}
		if err := wait(wake, deadline); err != nil {
			return 0, err
		}
	}
}

// wait returns nil when the reader should look again.
func wait(wake <-chan struct{}, deadline time.Time) error {
	if deadline.IsZero() {
		<-wake
		return nil
	}
	left := time.Until(deadline)
	if left <= 0 {
		return os.ErrDeadlineExceeded
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-wake:
		return nil
	case <-timer.C:
		return os.ErrDeadlineExceeded
	}
}

// pipeEnd is one end of a pipe.
type pipeEnd struct{ in, out *half }

func (e *pipeEnd) Read(p []byte) (int, error)  { return e.in.read(p) }
func (e *pipeEnd) Write(p []byte) (int, error) { return e.out.write(p) }

// Close closes both directions; the other end can still read what it has not read
// yet.
func (e *pipeEnd) Close() error {
	e.in.change(func() { e.in.closed = true })
	e.out.change(func() { e.out.closed = true })
	return nil
}

func (e *pipeEnd) SetReadDeadline(t time.Time) error {
	e.in.change(func() { e.in.deadline = t })
	return nil
}

// SetWriteDeadline does nothing: writes never block.
func (e *pipeEnd) SetWriteDeadline(time.Time) error { return nil }

func (e *pipeEnd) SetDeadline(t time.Time) error { return e.SetReadDeadline(t) }

func (e *pipeEnd) LocalAddr() net.Addr  { return pipeAddr{} }
func (e *pipeEnd) RemoteAddr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "memory" }
func (pipeAddr) String() string  { return "embedded" }
