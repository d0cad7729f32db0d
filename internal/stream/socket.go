package stream

import (
	"context"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/comfyhub/comfyhub/internal/retry"
)

const (
	// flagGrace is how long after opening an image waits for the client to say in which form it
	// wants images. Otherwise the first image of a replay would always be faster than the client's
	// feature_flags.
	flagGrace = 200 * time.Millisecond
	// lateGrace is how long an image or progress message waits for the message that
	// belongs before it.
	lateGrace = 50 * time.Millisecond
	// Longer messages are written in pieces of chunk bytes, so that pings and pongs can pass in
	// between: the library gives up on a connection to which it cannot write a control frame for 5
	// s.
	chunk = 128 << 10
	// pingPause is the longest pause between two attempts to write a ping.
	pingPause = time.Second
)

// socket is one WebSocket of a client: a bounded queue, and a writer that empties
// it. Only the reader and the writer ever wait for the client.
type socket struct {
	conn     *websocket.Conn
	inbound  inbound
	sid      string
	caller   string
	arrival  uint64 // orders the sockets of all clients by their handshakes
	claimed  bool   // this hub has become the client's owner with it; guarded by the client
	tally    *tally
	fanout   *statusFanout
	slot     fanoutSlot // guarded by fanout
	browser  bool       // kept alive with pings instead of status frames
	opened   time.Time
	interval time.Duration // minimum time between two status frames
	silence  time.Duration // maximum time without a message
	features func() []byte
	// received is called with each mark that the client has confirmed, and with the
	// newest probe that it has answered.
	received func(mark, probe uint64)
	// confirms starts confirm. Only the writer may call it.
	confirms func()

	wake     chan struct{} // something to write
	settled  chan struct{} // closed once the flags are known
	flags    flags
	shutOnce sync.Once
	shutDone chan struct{} // closed when the close handshake is over

	mu       sync.Mutex
	queue    queue
	replies  [][]byte // answers to this socket alone
	metadata bool     // previews carry metadata
	status   bool     // a status is due
	muted    bool     // a newer socket has taken over
	full     bool     // the client does not read
	shuts    bool     // this side closes it
	mark     uint64   // the newest that was written
	told     uint64   // the newest of a sequence whose end was written
	toldAt   time.Time
	probe    uint64 // the newest that is to be asked
	asking   bool   // confirm is running
	again    bool   // it is to send one more ping

	// Used by confirm only.
	confirmed, answered uint64
}

// push queues an item without blocking. A socket that has no room left is marked as
// full and accepts nothing more.
func (w *socket) push(it item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.muted || w.full {
		return
	}
	it.at = time.Now()
	if !w.queue.push(it) {
		w.full = true
		w.queue.clear()
		return
	}
	w.signal()
}

// overflowed reports whether the queue was full.
func (w *socket) overflowed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.full
}

// mute silences the socket for good: a newer one of the same client has taken over.
// It stays open, as in ComfyUI.
func (w *socket) mute() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.muted = true
	w.queue.clear()
	w.replies = nil
	w.signal() // it may be waiting to send a keep-alive
}

// silent reports whether the socket was muted.
func (w *socket) silent() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.muted
}

// statusDue makes the writer send a status as soon as the interval allows.
func (w *socket) statusDue() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status = true
	w.signal()
}

// signal wakes the writer.
func (w *socket) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// shut closes the socket with a code, without blocking. done is closed when the
// peer has answered or has timed out.
func (w *socket) shut(code websocket.StatusCode, reason string) (done <-chan struct{}) {
	w.shutOnce.Do(func() {
		w.mu.Lock()
		w.shuts = true
		w.mu.Unlock()
		go func() {
			defer close(w.shutDone)
			// An error only means that the peer was already gone.
			_ = w.conn.Close(code, reason)
		}()
	})
	return w.shutDone
}

// closing reports whether this side has begun to close the socket.
func (w *socket) closing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.shuts
}

func (w *socket) negotiate(message []byte) {
	if w.flags.settled {
		return
	}
	announced, metadata := w.flags.read(message)
	if !w.flags.settled {
		return
	}
	defer close(w.settled)
	if !announced {
		return
	}
	reply := featuresMessage(w.features())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.metadata = metadata
	if !w.muted {
		w.replies = append(w.replies, reply)
		w.signal()
	}
}

// ping asks whether the client has read everything so far. Only the writer may call it.
func (w *socket) ping() {
	w.mu.Lock()
	w.again = true
	starts := !w.asking
	w.asking = true
	w.mu.Unlock()
	if starts {
		w.confirms()
	}
}

// confirm sends pings and waits for their pongs, one at a time, until no more are asked for. A pong
// means that the client has read everything up to the mark that was written before the ping.
func (w *socket) confirm(ctx context.Context) {
	for {
		w.mu.Lock()
		asked, mark, probe := w.again, w.mark, w.probe
		w.asking, w.again = asked, false
		w.mu.Unlock()
		if !asked {
			return
		}
		// Writing a ping fails while a long message is being sent to a slow client,
		// and when the connection is gone and ctx is about to end.
		if retry.New(pingPause, pingPause).Do(ctx, w.conn.Ping, func(error) bool { return true }) != nil {
			return // and no other one is started: asking stays set
		}
		if mark > w.confirmed || probe > w.answered {
			w.confirmed, w.answered = mark, probe
			w.received(mark, probe)
		}
	}
}
