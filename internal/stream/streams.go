package stream

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/comfyhub/comfyhub/internal/budget"
	"github.com/comfyhub/comfyhub/internal/job"
)

// Errors that [Sockets.Serve] returns before anything was written to the client, so
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
type Streams struct {
	// Statuses are what sockets are told of the number of jobs.
	Statuses *Statuses
	// Sockets are the open sockets.
	Sockets *Sockets

	limits    *limits
	cancel    context.CancelFunc // ends all that is not over with the grace period of Close
	clients   *registry
	network   *network
	ownership *ownership
	receipts  *receipts
}

// New returns an empty set of streams. Clients that were connected to an earlier
// hub are assumed to have left now: their replay window begins.
func New(o Options) *Streams {
	o = o.withDefaults()
	ctx, cancel := context.WithCancel(context.Background())
	s := &Streams{Statuses: &Statuses{}, limits: &limits{}, cancel: cancel, network: newNetwork(ctx, o)}
	s.Statuses.callers.ask, s.Statuses.fanout.pace = o.Count, o.TenantStatuses
	s.SetLimits(Limits{ReplayWindow: o.ReplayWindow, MaxSockets: o.MaxSockets, TenantSockets: o.TenantSockets})
	s.clients = newRegistry(o, s.network, s.limits.window)
	s.receipts = &receipts{clients: s.clients, network: s.network, delivered: o.Delivered}
	s.ownership = &ownership{clients: s.clients, network: s.network, arrived: o.Arrived}
	s.Sockets = newSockets(ctx, o, s)
	if !s.network.alone() {
		x := &inbox{clients: s.clients, network: s.network, pass: s.Send, fetched: s.receipts.fetched}
		w := &watch{clients: s.clients, network: s.network, ownership: s.ownership, inbox: x, near: o.Neighbours, sendAway: s.Sockets.sendAway}
		w.start()
	}
	return s
}

// Begin opens the sequence of a run that has started to execute; its execution_start is the first
// Send. Each Begin must be followed by End or Lose, or the client's stream stalls; `defer
// run.Lose()` is fine, because it does nothing after End. The same prompt and fence return the same
// run. A key without a client returns a run that drops everything, and so does a job whose end has
// already been told.
func (s *Streams) Begin(k Key, a Attempt) *Run {
	r := &Run{}
	s.clients.change(k, true, func(c *client) {
		if c.fences.hasEnd(a.Job) {
			return
		}
		c.fences.enter(&c.line, a.Job, a.Fence)
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
	s.clients.change(k, true, func(c *client) {
		if c.fences.hasEnd(a.Job) {
			return
		}
		c.fences.enter(&c.line, a.Job, a.Fence)
		c.line.ended(a, msgs)
		c.findOwner()
	})
}

// Posted reports when a prompt was accepted, here or by another hub. It starts the
// replay window of a client that opens its socket after its POST. A tenant that
// names very many clients without sockets gets no more such windows.
func (s *Streams) Posted(k Key, at time.Time) {
	s.clients.change(k, s.clients.hasRoom(k.Tenant), func(c *client) {
		if until := at.Add(s.limits.window()); until.After(c.until) {
			c.until = until
		}
	})
}

// Owes reports whether this hub keeps a job whose end the client has yet to confirm. If the same
// prompt was posted again, its client must be sent nothing more: it waits for what is on its way, and
// no socket is told one end twice. Otherwise the caller may build the messages from history, see
// [Streams.Ended].
func (s *Streams) Owes(k Key, promptID, job string) (owes bool) {
	s.clients.change(k, false, func(c *client) { owes = c.line.lists.owes(promptID, job) })
	return owes
}

// Connected reports whether the client has a socket here.
func (s *Streams) Connected(k Key) (connected bool) {
	s.clients.change(k, false, func(c *client) { connected = c.socket != nil })
	return connected
}

// Send sends a message that belongs to no run to the client's socket here. The
// message is never held; without a socket it is dropped.
func (s *Streams) Send(k Key, m Message) {
	f := &frame{kind: m.Kind, node: m.Node, binary: m.Binary, data: m.Data, size: int64(len(m.Data))}
	s.clients.change(k, false, func(c *client) {
		switch {
		case c.opening > 0:
			c.early.keep(f)
		case c.socket != nil:
			c.socket.push(item{frame: f})
		}
	})
}

// PostedNext reports that the client has just posted a prompt here; the id is empty if the client
// has not chosen one. A client that posts after its last prompt has ended has read that end.
func (s *Streams) PostedNext(k Key, posted string) {
	s.receipts.receive(k, "next prompt", func(c *client) []*sequence { return c.line.postedNext(posted) })
}

// Fetched reports that one of the clients was sent the results of ended prompts, which is as good
// as reading their ends from the socket.
func (s *Streams) Fetched(clients []Key, prompts []string) {
	if len(prompts) == 0 {
		return
	}
	for _, k := range clients {
		s.receipts.fetched(k, prompts)
	}
	s.ownership.tell(clients, prompts)
}

// Knows reports whether the client has a socket at any hub, or had one within the
// replay window.
func (s *Streams) Knows(ctx context.Context, k Key) (known bool) {
	s.clients.change(k, false, func(*client) { known = true })
	if known || s.network.alone() || k.Client == "" {
		return known
	}
	owners, err := s.network.owners(ctx, k)
	return err == nil && owners[0].Hub != ""
}

// Pass sends a message that belongs to no run to the client's socket, whichever hub has it. Without
// a socket it is dropped, unless one is being opened: then it is held.
func (s *Streams) Pass(ctx context.Context, k Key, m Message) {
	here := s.network.alone()
	s.clients.change(k, false, func(c *client) { here = here || c.socket != nil || c.opening > 0 || c.ownedHere() })
	if here {
		s.Send(k, m)
		return
	}
	owners, err := s.network.owners(ctx, k)
	if err != nil || owners[0].Hub == "" || len(m.Data) > inlineBytes {
		return
	}
	s.network.send(owners[0].Hub, peerMessage{
		kind: peerClientMessages, k: k, owner: owners[0].Number, events: []runEvent{{kind: runFrame, message: m}},
	})
}

// Close ends all sockets with close frame 1001 (going away) and waits for them
// until ctx ends; then it cuts them. It refuses later sockets and drops everything
// that is kept.
func (s *Streams) Close(ctx context.Context) error {
	s.clients.close()
	err := s.Sockets.close(ctx, s.cancel)
	s.network.leave(ctx)
	s.cancel()
	s.clients.drop()
	s.network.close()
	return err
}
