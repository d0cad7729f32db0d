package stream

import (
	"sync"
	"time"

	"github.com/coder/websocket"
)

// client is one client's line with its socket and its clock.
type client struct {
	key     Key
	streams *Streams

	mu     sync.Mutex
	line   line
	socket *socket // the newest one; nil while there is none
	live   bool    // what it asked for
	// until is the end of the replay window while there is no socket.
	until time.Time
	alarm *time.Timer // at until; nil when not set
	gone  bool        // taken out of the registry

	// What follows is for hubs that share a queue; see home.go.

	home     Home     // as last heard
	entry    uint64   // tells this from what was known of the client before
	latest   uint64   // the arrival of the newest socket that has come
	opening  int      // sockets that have come and wait for other hubs
	courier  *courier // while the home is elsewhere
	seeking  bool     // the home is being asked for
	sources  map[string]*source
	fences   map[string]int64 // the newest of each job
	recent   []string         // jobs received last, at most maxRecent
	claiming int              // claims on their way
	awaited  int              // hubs that are to hand over
	answers  map[string]int64 // those that have, for which home
	newsChan chan struct{}
}

// attach makes w the client's socket. An older one stays open and gets
// nothing more, whatever happens to the new one. Older is whose handshake came
// first: a client may have left that socket and be back before it gets here.
func (c *client) attach(w *socket, live bool) {
	if c.socket != nil && c.socket.arrival > w.arrival {
		w.mute()
		return
	}
	c.note()
	if c.socket != nil {
		c.socket.mute()
	}
	c.stopCourier()
	c.socket = w
	c.connect(w, live)
}

// detach ends the part of w, if it is still the client's socket.
func (c *client) detach(w *socket) {
	if c.socket != w {
		return
	}
	c.note()
	c.socket = nil
	c.line.detach()
	c.extend()
}

// extend starts the replay window anew.
func (c *client) extend() {
	c.until = time.Now().Add(c.streams.window())
}

// settle brings the client in order after each change: a socket that does not
// read is closed, what nobody came back for is dropped, and a client of whom
// nothing is known any more leaves the registry.
func (c *client) settle() {
	if c.waits() && !c.line.doubtful() {
		c.line.attach(c.socket.push, c.live)
	}
	if w := c.socket; w != nil && w.overflowed() {
		c.streams.o.Logger.Warn("client does not read its socket; closing it", "queued_bytes_limit", w.queue.limit)
		c.detach(w)
		w.shut(websocket.StatusTryAgainLater, "too slow")
	}
	c.report()
	if c.alarm != nil {
		c.alarm.Stop()
		c.alarm = nil
	}
	if c.socket != nil || c.seeking || c.opening > 0 {
		return
	}
	if c.courier == nil {
		if left := time.Until(c.until); left > 0 {
			c.alarm = time.AfterFunc(left, c.expire)
			return
		}
		c.line.forget()
	}
	if c.line.empty() {
		c.gone = true
		c.streams.remove(c)
		c.release()
	}
}

func (c *client) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.gone {
		c.settle()
	}
}

// report logs what the line could not keep.
func (c *client) report() {
	if c.line.cuts > 0 {
		c.streams.o.Logger.Warn("held events of a client outgrew their memory and were shortened",
			"cuts", c.line.cuts, "limit_bytes", c.line.limits.hold)
		c.line.cuts = 0
	}
	if c.line.spillErr != nil {
		c.streams.o.Logger.Warn("held results stay in memory", "error", c.line.spillErr)
		c.line.spillErr = nil
	}
}

// Attempt names one run of a prompt.
type Attempt struct {
	// Prompt is the client's id of the prompt.
	Prompt string
	// Job is the hubs' own key of it, unique among all. It may be empty where
	// no other hub can have a run of the same job.
	Job string
	// Fence grows with each run of a job.
	Fence int64
}

// Run is the sequence of one run of a prompt. Its methods are safe for use by
// several goroutines and do nothing once the run is over.
type Run struct {
	client   *client // nil for a run without a stream
	sequence *sequence
}

// Send adds a message of the run.
func (r *Run) Send(m Message) { r.do(func(l *line) { l.send(r.sequence, m) }) }

// End closes the sequence: the given end messages (execution_success, _error
// or _interrupted), then status, then executing null. It must be called only
// when the job is off /queue and in /history: clients ask there at once.
func (r *Run) End(end ...Message) { r.do(func(l *line) { l.end(r.sequence, end) }) }

// Lose gives up the stream: the run was lost. A later Begin of the prompt
// starts a complete new sequence.
func (r *Run) Lose() { r.do(func(l *line) { l.lose(r.sequence) }) }

func (r *Run) do(change func(*line)) {
	c := r.client
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// A run that is over may outlive its client's entry in the registry.
	if r.sequence.over || c.gone {
		return
	}
	change(&c.line)
	c.settle()
}
