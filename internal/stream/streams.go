package stream

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/budget"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/tenantlru"
)

// Errors that [Streams.Serve] returns before anything was written to the client, so
// that its caller can answer.
var (
	// ErrFull means that MaxSockets sockets are open, or nearly so and the caller
	// has more than a fair share of them.
	ErrFull = errors.New("stream: too many sockets")
	// ErrTenantFull means that the tenant has TenantSockets open sockets.
	ErrTenantFull = errors.New("stream: too many sockets of one tenant")
	// ErrClosed means that the streams are shut down.
	ErrClosed = errors.New("stream: closed")
)

// Key identifies a stream: clients of different tenants may use the same client id.
type Key struct {
	Tenant string
	// Client is the client id; empty means no stream at all.
	Client string
}

// KeyOf returns the stream of a requester's jobs.
func KeyOf(r job.Requester) Key { return Key{Tenant: r.Tenant, Client: r.Client} }

// Options configure [New]. The zero value of each field means its default.
type Options struct {
	// ReplayWindow is how long a client may be disconnected and still be sent what
	// it missed. Default: 60 s.
	ReplayWindow time.Duration
	// KeepAlive is the longest time without a message on a socket. Default: 9 s,
	// because clients reconnect after 10 s.
	KeepAlive time.Duration
	// StatusInterval is the shortest time between two status messages of a socket,
	// except at the end of its own prompts. Default: 100 ms.
	StatusInterval time.Duration
	// TenantStatuses is how many sockets of one tenant are sent a status per second
	// because a job of another caller has changed the tenant's listings. Default:
	// 100.
	TenantStatuses int
	// HoldBytes bounds what is kept in memory for one client. Default: 16 MiB.
	HoldBytes int64
	// SocketBytes bounds what is queued for one socket. It is raised to at least
	// twice HoldBytes, so that a replay fits. Default: 32 MiB.
	SocketBytes int64
	// SpillBytes is how many bytes of results are kept in memory for one client
	// before further ones go to a file. Default: 4 MiB.
	SpillBytes int64
	// SpillDir is the folder for such files. Default: the system's.
	SpillDir string
	// MaxSockets bounds the open sockets. Default: 10000.
	MaxSockets int
	// TenantSockets bounds the open sockets of a tenant; 0 means no limit per
	// tenant, which is the default.
	TenantSockets func(tenant string) int
	// Shares reports whether a tenant has to leave room for others in what is kept for clients.
	// Default: none does.
	Shares func(tenant string) bool
	// Budget counts what arrives from clients. Default: its own.
	Budget *budget.Budget
	// Features returns the server's feature flags as a JSON object. It is called
	// once per socket. Default: those of ComfyUI 0.3.64.
	Features func() json.RawMessage
	// Count returns how many jobs of a caller are queued or running. Default: 0.
	Count func(ctx context.Context, caller string) (int, error)
	// Delivered is called when a client has confirmed the whole sequence of a
	// prompt. No locks are held; while it blocks, further receipts of that socket
	// wait.
	Delivered func(k Key, promptID string)
	// Transport connects to the other hubs that share the queue; nil if there are
	// none.
	Transport Transport
	// Neighbours know whether other hubs are better off than this one. Default: nobody does, and
	// sockets stay open however long this hub is cut off.
	Neighbours Neighbours
	// Arrived is called when the socket of a client that this hub did not own has opened here. By
	// then other hubs have handed over what they have, and nothing has been sent yet: it is the
	// time to report with [Streams.EndedElsewhere] what none of them has kept. It must return
	// quickly.
	Arrived func(ctx context.Context, k Key)
	// Observe takes measurements. Default: nobody does.
	Observe Observer
	// Logger receives log records. Default: none.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.KeepAlive = positive(o.KeepAlive, 9*time.Second)
	o.StatusInterval = positive(o.StatusInterval, 100*time.Millisecond)
	o.TenantStatuses = positive(o.TenantStatuses, 100)
	if o.Budget == nil {
		o.Budget = budget.New()
		o.Budget.Resize(budget.Memory, 64<<20, 4, nil)
	}
	o.HoldBytes = positive(o.HoldBytes, 16<<20)
	o.SocketBytes = max(o.SocketBytes, 2*o.HoldBytes)
	o.SpillBytes = positive(o.SpillBytes, 4<<20)
	if o.Features == nil {
		o.Features = func() json.RawMessage { return json.RawMessage(defaultFeatures) }
	}
	if o.Count == nil {
		o.Count = func(context.Context, string) (int, error) { return 0, nil }
	}
	if o.Shares == nil {
		o.Shares = func(string) bool { return false }
	}
	if o.Delivered == nil {
		o.Delivered = func(Key, string) {}
	}
	if o.Arrived == nil {
		o.Arrived = func(context.Context, Key) {}
	}
	if o.Observe == nil {
		o.Observe = unobserved{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func positive[T int | int64 | time.Duration](value, otherwise T) T {
	if value > 0 {
		return value
	}
	return otherwise
}

// Streams holds the event streams of all clients. It is safe for concurrent use.
//
// Many methods: the sockets, lines and owners of all clients are found by the same
// key under one lock, and each message from a client, a run or another hub changes
// them together.
type Streams struct {
	o       Options
	started time.Time
	callers callers
	// fanout sends a status when the listings change.
	fanout statusFanout

	limits atomic.Pointer[Limits]

	ctx    context.Context // ends with the grace period of Close
	cancel context.CancelFunc
	// closing ends when Close begins.
	closing context.Context
	close   context.CancelFunc

	transport Transport // nil without other hubs
	self      string
	sessions  atomic.Uint64           // of forwarders and entries
	numbers   atomic.Uint64           // of sequences
	arrivals  atomic.Uint64           // of sockets
	pongs     tenantlru.Map[struct{}] // the clients that have answered a ping
	network   sync.WaitGroup          // requests to other hubs in progress
	cutOff    time.Time               // since when no heartbeat has reached the others, for that goroutine

	mu      sync.Mutex
	clients map[Key]*client
	total   *ledger
	tenants map[string]*ledger
	sockets map[*socket]struct{}
	slots   slots
	closed  bool
	away    bool // sockets are refused: other hubs serve them better
	over    bool // nothing more may be spawned
	serving sync.WaitGroup
}

// New returns an empty set of streams. Clients that were connected to an earlier
// hub are assumed to have left now: their replay window begins.
func New(o Options) *Streams {
	s := &Streams{
		o:       o.withDefaults(),
		started: time.Now(),
		clients: make(map[Key]*client),
		total:   &ledger{},
		tenants: make(map[string]*ledger),
		sockets: make(map[*socket]struct{}),
	}
	s.callers.ask = s.o.Count
	s.fanout.pace = s.o.TenantStatuses
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.closing, s.close = context.WithCancel(context.Background())
	s.SetLimits(Limits{ReplayWindow: o.ReplayWindow, MaxSockets: o.MaxSockets, TenantSockets: o.TenantSockets})
	s.startNetwork()
	return s
}

// change runs fn on the client of k with its lock held, then settles the client. If
// the client is unknown and create is false, fn is not called.
func (s *Streams) change(k Key, create bool, fn func(*client)) {
	if k.Client == "" {
		return
	}
	for {
		c := s.client(k, create)
		if c == nil {
			return
		}
		if c.change(fn) {
			return
		}
	}
}

// client returns the client of k, creating it if create is set.
func (s *Streams) client(k Key, create bool) *client {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clients[k]
	if c == nil && create && !s.closed {
		c = &client{key: k, streams: s, until: s.started.Add(s.window())}
		c.entry, c.line.numbers = s.sessions.Add(1), &s.numbers
		// A late pong may be for an earlier entry of the client: its numbers are lower.
		c.line.mark, c.line.probe = c.entry<<32, c.entry<<32
		c.line.limits = lineLimits{
			hold: s.o.HoldBytes, spill: s.o.SpillBytes, spillDir: s.o.SpillDir, ledger: s.ledger(k.Tenant),
		}
		c.line.limits.ledger.clients++
		s.pongs.Read(k.Tenant, k.Client, func(*struct{}) { c.line.pongs = true })
		s.clients[k] = c
	}
	return c
}

// ledger returns the ledger of a tenant, creating it if necessary. The caller holds the lock.
func (s *Streams) ledger(tenant string) *ledger {
	g := s.tenants[tenant]
	if g == nil {
		g = &ledger{above: s.total, part: func() bool { return s.o.Shares(tenant) }}
		s.tenants[tenant] = g
		s.total.tenants.Add(1)
	}
	return g
}

// ledgerOf returns the ledger of a client's tenant.
func (s *Streams) ledgerOf(k Key) (g *ledger) {
	s.change(k, false, func(c *client) { g = c.line.limits.ledger })
	return g
}

// forget removes a client from the count of its tenant. The caller holds the lock.
func (s *Streams) forget(c *client) {
	g := c.line.limits.ledger
	if g.clients--; g.clients == 0 && s.tenants[c.key.Tenant] == g {
		delete(s.tenants, c.key.Tenant)
		s.total.tenants.Add(-1)
	}
}

// hasRoom reports whether a tenant may have one more client without a socket.
func (s *Streams) hasRoom(tenant string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.tenants[tenant].crowded(len(s.clients))
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

// remove removes a client, whose lock is held, from the registry.
func (s *Streams) remove(c *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clients[c.key] == c {
		delete(s.clients, c.key)
		s.forget(c)
	}
}

// Begin opens the sequence of a run that has started to execute; its execution_start is the first
// Send. Each Begin must be followed by End or Lose, or the client's stream stalls; `defer
// run.Lose()` is fine, because it does nothing after End. The same prompt and fence return the same
// run. A key without a client returns a run that drops everything, and so does a job whose end has
// already been told.
func (s *Streams) Begin(k Key, a Attempt) *Run {
	r := &Run{}
	s.change(k, true, func(c *client) {
		if c.hasEnd(a.Job) {
			return
		}
		c.newest(a.Job, a.Fence)
		r.client, r.sequence = c, c.line.begin(a.Prompt, a.Fence)
		if q := r.sequence; q.at == 0 {
			q.job, q.at = a.Job, time.Now().UnixMilli()
		}
		c.findOwner()
	})
	return r
}

// Ended adds the complete sequence of a prompt that ended without a run here: refused by the
// instance, never runnable, or known from history only. The messages start with execution_start and
// include the end message; status and executing null are added. With a job, it is an end that this
// hub has brought about, and is not shown if it has already been told; without one, it is shown
// whatever was shown before.
func (s *Streams) Ended(k Key, a Attempt, msgs ...Message) {
	s.change(k, true, func(c *client) {
		if c.hasEnd(a.Job) {
			return
		}
		c.newest(a.Job, a.Fence)
		c.line.ended(a, msgs)
		c.findOwner()
	})
}

// Posted reports when a prompt was accepted, here or by another hub. It starts the
// replay window of a client that opens its socket after its POST. A tenant that
// names very many clients without sockets gets no more such windows.
func (s *Streams) Posted(k Key, at time.Time) {
	s.change(k, s.hasRoom(k.Tenant), func(c *client) {
		if until := at.Add(s.window()); until.After(c.until) {
			c.until = until
		}
	})
}

// Owes reports whether this hub keeps a job whose end the client has yet to confirm. If the same
// prompt was posted again, its client must be sent nothing more: it waits for what is on its way, and
// no socket is told one end twice. Otherwise the caller may build the messages from history, see
// [Streams.Ended].
func (s *Streams) Owes(k Key, promptID, job string) (owes bool) {
	s.change(k, false, func(c *client) { owes = c.line.owes(promptID, job) })
	return owes
}

// Connected reports whether the client has a socket here.
func (s *Streams) Connected(k Key) (connected bool) {
	s.change(k, false, func(c *client) { connected = c.socket != nil })
	return connected
}

// Send sends a message that belongs to no run to the client's socket here. The
// message is never held; without a socket it is dropped.
func (s *Streams) Send(k Key, m Message) {
	f := &frame{kind: m.Kind, node: m.Node, binary: m.Binary, data: m.Data, size: int64(len(m.Data))}
	s.change(k, false, func(c *client) {
		switch {
		case c.opening > 0:
			c.early.keep(f)
		case c.socket != nil:
			c.socket.push(item{frame: f})
		}
	})
}

// Sockets returns the number of open sockets.
func (s *Streams) Sockets() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sockets)
}

// SocketsOf returns the number of open sockets of a tenant.
func (s *Streams) SocketsOf(tenant string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slots.tenants[tenant]
}
