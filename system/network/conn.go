package network

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// window is how many bytes may be under way in one direction before writes wait.
const window = 256 << 10

// conn is one end of a connection.
type conn struct {
	network       *Network
	local, remote Addr
	in, out       *half
	once          sync.Once
}

func (c *conn) Read(p []byte) (int, error) { return c.in.read(p) }

func (c *conn) Write(p []byte) (int, error) {
	if lose := c.network.state(c.out.path).Lose; lose != nil && lose() {
		c.reset()
		return len(p), nil // whoever writes learns it from the next call
	}
	return c.out.write(p)
}

// reset breaks both directions: neither end gets what is under way.
func (c *conn) reset() {
	c.in.fail(syscall.ECONNRESET)
	c.out.fail(syscall.ECONNRESET)
}

// Close ends both directions: the other end reads what is under way, then EOF.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.out.end()
		c.in.fail(net.ErrClosed)
		c.in.change(func() { c.in.closed = true })
		c.network.forget(c)
	})
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.change(func() { c.in.readBy = t })
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.change(func() { c.out.writeBy = t })
	return nil
}

func (c *conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// half is one direction of a connection.
type half struct {
	network *Network
	path    path

	mu    sync.Mutex
	parts []part
	size  int // bytes in parts
	ended bool
	// closed is set when the process that reads has closed its end.
	closed bool
	// err breaks the direction: nothing under way arrives.
	err             error
	readBy, writeBy time.Time
	// wake is closed and replaced when anybody who waits should look again.
	wake chan struct{}
}

// part is what one write has sent.
type part struct {
	data []byte
	due  time.Time // when it arrives, if the link is open then
}

func newHalf(n *Network, p path) *half {
	return &half{network: n, path: p, wake: make(chan struct{})}
}

// change runs f with the lock held and wakes whoever waits.
func (h *half) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	close(h.wake)
	h.wake = make(chan struct{})
}

func (h *half) end() { h.change(func() { h.ended = true }) }

func (h *half) fail(err error) {
	h.change(func() {
		if h.err == nil {
			h.err, h.parts, h.size = err, nil, 0
		}
	})
}

func (h *half) write(p []byte) (n int, err error) {
	for len(p) > 0 {
		h.mu.Lock()
		room, wake, deadline := window-h.size, h.wake, h.writeBy
		switch {
		case h.err != nil:
			err = h.err
		case h.ended:
			err = io.ErrClosedPipe
		case expired(deadline):
			err = os.ErrDeadlineExceeded
		}
		h.mu.Unlock()
		s := h.network.state(h.path)
		if s.from && err != nil {
			// A frozen process learns it from its next call when it goes on. It does not wait for
			// that here: whoever closes a connection by TLS writes with a lock held.
			return n + len(p), nil
		}
		if s.from && room <= 0 {
			wait(time.Time{}, nil, s.changed)
			continue
		}
		if err != nil {
			return n, opError("write", err)
		}
		if room <= 0 {
			wait(deadline, wake, nil)
			continue
		}
		sent := p[:min(room, len(p))]
		h.change(func() {
			due := time.Now().Add(s.Delay)
			if last := len(h.parts) - 1; last >= 0 && h.parts[last].due.After(due) {
				due = h.parts[last].due // nothing overtakes
			}
			h.parts = append(h.parts, part{append([]byte(nil), sent...), due})
			h.size += len(sent)
		})
		n, p = n+len(sent), p[len(sent):]
	}
	return n, nil
}

// read waits for what comes. A process that was frozen meanwhile sees first what has come,
// and then that its deadline has passed.
func (h *half) read(p []byte) (int, error) {
	slept := false
	for {
		s := h.network.state(h.path)
		h.mu.Lock()
		wake, deadline := h.wake, h.readBy
		// Whoever closes a WebSocket waits for its reader with a lock held, so that may not be
		// held up: the process itself has closed the connection.
		if s.to && !h.closed {
			h.mu.Unlock()
			slept = true
			wait(time.Time{}, wake, s.changed)
			continue
		}
		var next time.Time
		var err error
		switch {
		case h.err != nil:
			err = h.err
		case expired(deadline) && !(slept && s.open && h.arrived()):
			err = os.ErrDeadlineExceeded
		case len(h.parts) == 0 && h.ended && s.open:
			h.mu.Unlock()
			return 0, io.EOF
		case len(h.parts) > 0 && s.open:
			if next = h.parts[0].due; !next.After(time.Now()) {
				n := copy(p, h.parts[0].data)
				if h.parts[0].data = h.parts[0].data[n:]; len(h.parts[0].data) == 0 {
					h.parts = h.parts[1:]
				}
				h.size -= n
				close(h.wake) // whoever writes has room
				h.wake = make(chan struct{})
				h.mu.Unlock()
				return n, nil
			}
		}
		h.mu.Unlock()
		if err != nil {
			return 0, opError("read", err)
		}
		if !next.IsZero() && (deadline.IsZero() || next.Before(deadline)) {
			deadline = next
		}
		wait(deadline, wake, s.changed)
	}
}

// arrived reports whether there is something to read. The caller holds mu.
func (h *half) arrived() bool {
	if len(h.parts) == 0 {
		return h.ended
	}
	return !h.parts[0].due.After(time.Now())
}

func expired(deadline time.Time) bool { return !deadline.IsZero() && !time.Now().Before(deadline) }

// wait waits until a time, if there is one, or one of two channels.
func wait(until time.Time, one, other <-chan struct{}) {
	var due <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-due:
	case <-one:
	case <-other:
	}
}
