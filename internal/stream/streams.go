package stream

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
)

// Errors of [Streams.Serve] that come before anything was written to the
// client: the caller answers.
var (
	// ErrFull says that MaxSockets sockets are open, or nearly so and that the
	// caller has more than a fair share of them.
	ErrFull = errors.New("stream: too many sockets")
	// ErrTenantFull says that TenantSockets sockets of the tenant are open.
	ErrTenantFull = errors.New("stream: too many sockets of one tenant")
	// ErrClosed says that the streams are shut down.
	ErrClosed = errors.New("stream: closed")
)

// Key names a stream: clients of different tenants may use one client id.
type Key struct {
	Tenant string
	// Client is the client id; empty means no stream at all.
	Client string
}

// Ident is who opens a socket.
type Ident struct {
	Tenant string
	// Client is the clientId of the query; empty mints one.
	Client string
	// Caller is whose jobs `status` counts.
	Caller string
	// Network is what tells callers of a tenant apart that may have nothing to
	// do with each other; empty where the tenant is one person's.
	Network string
	// Live asks for interleaved events: nothing is held.
	Live bool
}

// Options configure [New]. The zero value of each field means its default.
type Options struct {
	// ReplayWindow is how long a client may be away and still be sent what it
	// missed. Default: 60 s.
	ReplayWindow time.Duration
	// KeepAlive is the longest silence of a socket. Default: 9 s, because
	// clients reconnect after 10 s.
	KeepAlive time.Duration
	// StatusInterval is the shortest time between two status messages of a
	// socket, ends of its own prompts apart. Default: 100 ms.
	StatusInterval time.Duration
	// TenantStatuses is how many sockets of one tenant are sent a status in a
	// second because a job of another caller has changed what the tenant's
	// listings show. Default: 100.
	TenantStatuses int
	// HoldBytes bounds what is kept in memory for one client. Default: 16 MiB.
	HoldBytes int64
	// SocketBytes bounds what waits to be written to one socket; less than
	// twice HoldBytes is raised to it, so that a replay fits. Default: 32 MiB.
	SocketBytes int64
	// SpillBytes is how many bytes of results are kept in memory for one
	// client before further ones go to a file. Default: 4 MiB.
	SpillBytes int64
	// SpillDir is the folder for such files. Default: the system's.
	SpillDir string
	// MaxSockets bounds the open sockets. Default: 10000.
	MaxSockets int
	// TenantSockets bounds those of a tenant; 0 is no bound of its own, as is
	// the default.
	TenantSockets func(tenant string) int
	// Shares reports whether a tenant has to leave room for others in what is
	// kept for clients. Default: none has.
	Shares func(tenant string) bool
	// Features gives the server's feature flags as a JSON object, asked once
	// a socket. Default: what ComfyUI 0.3.64 says.
	Features func() json.RawMessage
	// Count is how many jobs of a caller are queued or running. Default: 0.
	Count func(ctx context.Context, caller string) (int, error)
	// Delivered is told when a client has confirmed the whole sequence of a
	// prompt. It is called without locks; while it blocks, further receipts
	// of that socket wait.
	Delivered func(k Key, promptID string)
	// Carrier connects with other hubs that share the queue; nil means that
	// there are none.
	Carrier Carrier
	// Arrived is told when a client's socket has opened here and was not here
	// before, after other hubs have handed over what they have and before
	// anything is sent: the time to [Streams.Tell] what none of them has kept.
	// It must not take long.
	Arrived func(ctx context.Context, k Key)
	// Logger takes log lines. Default: none.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.KeepAlive = positive(o.KeepAlive, 9*time.Second)
	o.StatusInterval = positive(o.StatusInterval, 100*time.Millisecond)
	o.TenantStatuses = positive(o.TenantStatuses, 100)
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

// Streams are the event streams of all clients. It is safe for use by several
// goroutines.
type Streams struct {
	o       Options
	started time.Time
	callers callers
	// audiences hear of changes in the listings.
	audiences audiences

	limits atomic.Pointer[Limits]

	ctx    context.Context // ends with the last grace of Close
	cancel context.CancelFunc

	carrier  Carrier // nil when alone
	self     string
	sessions atomic.Uint64  // of couriers and entries
	numbers  atomic.Uint64  // of sequences
	arrivals atomic.Uint64  // of sockets
	network  sync.WaitGroup // what is on its way to other hubs

	mu      sync.Mutex
	clients map[Key]*client
	total   *ledger
	tenants map[string]*ledger
	sockets map[*socket]struct{}
	places  places
	closed  bool
	over    bool // nothing more may be spawned
	serving sync.WaitGroup
}

// New makes an empty set of streams. Clients that were connected to an earlier
// hub are taken to have left now: their replay window begins.
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
	s.audiences.pace = s.o.TenantStatuses
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.SetLimits(Limits{ReplayWindow: o.ReplayWindow, MaxSockets: o.MaxSockets, TenantSockets: o.TenantSockets})
	s.startNetwork()
	return s
}

// Limits are those of the Options that a reload of the configuration may
// change. Zero values mean the defaults.
type Limits struct {
	ReplayWindow  time.Duration
	MaxSockets    int
	TenantSockets func(tenant string) int
}

// SetLimits replaces the limits.
func (s *Streams) SetLimits(l Limits) {
	l.ReplayWindow = positive(l.ReplayWindow, time.Minute)
	l.MaxSockets = positive(l.MaxSockets, 10_000)
	if l.TenantSockets == nil {
		l.TenantSockets = func(string) int { return 0 }
	}
	s.limits.Store(&l)
}

func (s *Streams) window() time.Duration { return s.limits.Load().ReplayWindow }

// change runs fn on the client of k under its lock, and brings the client in
// order afterwards. A client that is not known is made, or fn is not called.
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

// client finds or makes the client of k.
func (s *Streams) client(k Key, create bool) *client {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clients[k]
	if c == nil && create && !s.closed {
		c = &client{key: k, streams: s, until: s.started.Add(s.window())}
		c.entry, c.line.numbers = s.sessions.Add(1), &s.numbers
		c.line.limits = lineLimits{
			hold: s.o.HoldBytes, spill: s.o.SpillBytes, spillDir: s.o.SpillDir, ledger: s.ledger(k.Tenant),
		}
		c.line.limits.ledger.clients++
		s.clients[k] = c
	}
	return c
}

// ledger finds or makes that of a tenant; the lock is held.
func (s *Streams) ledger(tenant string) *ledger {
	g := s.tenants[tenant]
	if g == nil {
		g = &ledger{above: s.total, part: func() bool { return s.o.Shares(tenant) }}
		s.tenants[tenant] = g
		s.total.tenants.Add(1)
	}
	return g
}

// ledgerOf is that of a client's tenant.
func (s *Streams) ledgerOf(k Key) (g *ledger) {
	s.change(k, false, func(c *client) { g = c.line.limits.ledger })
	return g
}

// forget takes a client out of the count of its tenant; the lock is held.
func (s *Streams) forget(c *client) {
	g := c.line.limits.ledger
	if g.clients--; g.clients == 0 && s.tenants[c.key.Tenant] == g {
		delete(s.tenants, c.key.Tenant)
		s.total.tenants.Add(-1)
	}
}

// hasRoom reports whether one more client of a tenant may be known that has no
// socket.
func (s *Streams) hasRoom(tenant string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.tenants[tenant].crowded(len(s.clients))
}

// change reports false when the client has left the registry meanwhile.
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

// remove takes a client out of the registry; its lock is held.
func (s *Streams) remove(c *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clients[c.key] == c {
		delete(s.clients, c.key)
		s.forget(c)
	}
}

// Begin opens the sequence of a run that began to execute; its execution_start
// is the first Send. Each Begin must be followed by End or Lose, or the stream
// of the client stands still: `defer run.Lose()` is right, as it does nothing
// after End. The same prompt and fence give the same run again. A key without
// a client gives a run that drops everything.
func (s *Streams) Begin(k Key, a Attempt) *Run {
	r := &Run{}
	s.change(k, true, func(c *client) {
		c.newest(a.Job, a.Fence)
		r.client, r.sequence = c, c.line.begin(a.Prompt, a.Fence)
		if q := r.sequence; q.at == 0 {
			q.job, q.at = a.Job, time.Now().UnixMilli()
		}
		c.seek()
	})
	return r
}

// Ended adds the complete sequence of a prompt that ended without a run here:
// refused by the instance, never runnable, or known from history only. The
// messages go from execution_start to the end message; status and executing
// null follow by themselves. With a job it is the end that this hub has
// brought about; without one it is shown whatever was shown before.
func (s *Streams) Ended(k Key, a Attempt, msgs ...Message) {
	s.change(k, true, func(c *client) {
		c.newest(a.Job, a.Fence)
		c.line.ended(a, msgs)
		c.seek()
	})
}

// Posted tells when a prompt was accepted, here or by another hub. It starts
// the replay window of a client whose socket opens later than its POST. A tenant
// that names very many clients whose sockets do not open has no more such
// windows.
func (s *Streams) Posted(k Key, at time.Time) {
	s.change(k, s.hasRoom(k.Tenant), func(c *client) {
		if until := at.Add(s.window()); until.After(c.until) {
			c.until = until
		}
	})
}

// Replay sends the messages of an ended prompt again, because the same prompt
// was posted again. It reports whether they are (or will be) sent; if not,
// they are no longer known and the caller may build them from history, see
// [Streams.Ended].
func (s *Streams) Replay(k Key, promptID string) (known bool) {
	s.change(k, false, func(c *client) { known = c.line.replay(promptID) })
	return known
}

// Showing is the running prompt whose messages the client is being shown; ok
// is false when there is none, or no socket.
func (s *Streams) Showing(k Key) (promptID string, ok bool) {
	s.change(k, false, func(c *client) {
		if c.socket != nil {
			promptID, ok = c.line.showing()
		}
	})
	return promptID, ok
}

// Connected reports whether the client has a socket here.
func (s *Streams) Connected(k Key) (connected bool) {
	s.change(k, false, func(c *client) { connected = c.socket != nil })
	return connected
}

// Broadcast sends a message that belongs to no run to the client's socket; it
// is never held, and dropped when there is no socket.
func (s *Streams) Broadcast(k Key, m Message) {
	f := &frame{kind: m.Kind, node: m.Node, binary: m.Binary, data: m.Data, size: int64(len(m.Data))}
	s.change(k, false, func(c *client) {
		if c.socket != nil {
			c.socket.push(item{frame: f})
		}
	})
}

// Sockets is the number of open sockets.
func (s *Streams) Sockets() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sockets)
}

// SocketsOf counts the open sockets of a tenant.
func (s *Streams) SocketsOf(tenant string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.places.tenants[tenant]
}

// wantsLive reports whether the query asks for interleaved events.
func wantsLive(r *http.Request) bool {
	return aiohttp.ParseQuery(r.URL.RawQuery).Get("events") == "live"
}
