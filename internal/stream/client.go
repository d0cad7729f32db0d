package stream

import (
	"log/slog"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// client is one client: its line, its newest socket and its replay timer.
// Whatever changes one of them restores what must be true of all, see settle.
type client struct {
	key      Key
	registry *registry
	network  *network
	log      *slog.Logger

	mu     sync.Mutex
	line   line
	socket *socket // the newest one; nil if there is none
	live   bool    // the client asked for interleaved events
	// opening counts the sockets that were promised to the client but are not its own yet, and
	// early is what was sent to it meanwhile.
	opening int
	early   early
	// until is when the replay window ends, while there is no socket.
	until time.Time
	alarm *time.Timer // fires at until; nil if not set
	gone  bool        // removed from the registry

	// The rest is for hubs that share a queue; see owner.go.

	owner     Owner      // as last reported
	entry     uint64     // tells this client from an earlier one that was forgotten
	latest    uint64     // arrival number of the newest socket
	forwarder *forwarder // set while another hub is the owner
	finding   bool       // the owner is being looked up
	remotes   remotes
	fences    fences
	handover  handover
}

func newClient(r *registry, k Key, until time.Time) *client {
	c := &client{key: k, registry: r, network: r.network, log: r.o.Logger, until: until}
	c.fences.alone = c.network.alone()
	c.remotes = remotes{line: &c.line, fences: &c.fences}
	return c
}

// change returns false if the client has left the registry meanwhile.
func (c *client) change(fn func(*client)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return false
	}
	fn(c)
	c.settle()
	return true
}

// attach makes w the client's socket. An older socket stays open but is sent
// nothing more, even if w fails later. Sockets are ordered by their handshakes: a
// client may have left a socket and reconnected before the first one gets here.
func (c *client) attach(w *socket, live bool) {
	if c.socket != nil && c.socket.arrival > w.arrival {
		w.mute()
		return
	}
	c.noteWritten()
	if c.socket != nil {
		c.socket.mute()
	}
	c.stopForwarder()
	c.socket = w
	c.connect(w, live)
}

// detach removes w, if it is still the client's socket.
func (c *client) detach(w *socket) {
	if c.socket != w {
		return
	}
	c.noteWritten()
	c.socket = nil
	c.line.detach()
	c.extend()
}

// extend restarts the replay window.
func (c *client) extend() {
	c.until = time.Now().Add(c.registry.window())
}

// settle restores the client's invariants after each change: it closes a socket
// that is not being read, drops what no client came back for, and removes a client
// with nothing left from the registry.
func (c *client) settle() {
	if c.waits() && !c.line.lists.doubtful() {
		c.line.attach(c.socket.push, c.live)
	}
	if w := c.socket; w != nil && w.overflowed() {
		c.log.Warn("client does not read its socket; closing it", "queued_bytes_limit", w.queue.limit)
		c.detach(w)
		w.shut(websocket.StatusTryAgainLater, "too slow")
	}
	c.report()
	if c.alarm != nil {
		c.alarm.Stop()
		c.alarm = nil
	}
	if c.socket != nil || c.finding || c.opening > 0 {
		return
	}
	if c.forwarder == nil {
		if left := time.Until(c.until); left > 0 {
			c.alarm = time.AfterFunc(left, func() { c.change(func(*client) {}) })
			return
		}
		c.line.forget()
	}
	if c.line.lists.empty() {
		c.gone = true
		c.registry.remove(c)
		c.release()
	}
}

// report logs what the line could not keep, and notes what must not be sent again.
func (c *client) report() {
	for _, job := range c.line.unheld {
		c.fences.note(job, finished)
	}
	c.line.unheld = nil
	if c.line.cuts > 0 {
		c.log.Warn("held events of a client exceeded their memory and were truncated",
			"cuts", c.line.cuts, "limit_bytes", c.line.buffer.limits.hold)
		c.line.cuts = 0
	}
	if c.line.buffer.spillErr != nil {
		c.log.Warn("held results stay in memory", "error", c.line.buffer.spillErr)
		c.line.buffer.spillErr = nil
	}
}

// Attempt identifies one run of a prompt.
type Attempt struct {
	// Prompt is the client's id of the prompt.
	Prompt string
	// Job is the hubs' own key of the job, unique across all hubs. It may be empty
	// if no other hub can run the same job.
	Job string
	// Fence grows with each run of a job.
	Fence int64
}

// Run is the sequence of one run of a prompt. Its methods are safe for concurrent
// use and do nothing once the run is over.
type Run struct {
	client   *client // nil for a run without a stream
	sequence *sequence
}

// Send adds a message of the run.
func (r *Run) Send(m Message) { r.do(func(l *line) { l.send(r.sequence, m) }) }

// End closes the sequence: it sends the given end messages (execution_success,
// _error or _interrupted), then status, then executing null. Call it only when the
// job has left /queue and is in /history: clients look there immediately.
func (r *Run) End(end ...Message) { r.do(func(l *line) { l.end(r.sequence, end) }) }

// EndCounted is End for a job whose end has told the number of its caller's jobs, see
// [Statuses.Counting].
func (r *Run) EndCounted(end ...Message) {
	r.do(func(l *line) {
		r.sequence.counted = true
		l.end(r.sequence, end)
	})
}

// Lose abandons the sequence because the run was lost. The next Begin of the prompt
// starts a new, complete sequence.
func (r *Run) Lose() { r.do(func(l *line) { l.lose(r.sequence) }) }

func (r *Run) do(change func(*line)) {
	if r.client == nil {
		return
	}
	// A run that is over may outlive its client in the registry.
	r.client.change(func(c *client) {
		if !r.sequence.over {
			change(&c.line)
		}
	})
}
