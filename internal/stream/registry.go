package stream

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/tenantlru"
)

// registry has the clients of whom something is kept, each as long as that is so, and what is kept
// for the clients of each tenant.
type registry struct {
	o       Options
	log     *slog.Logger
	network *network
	started time.Time
	window  func() time.Duration    // how long a client may be away
	entries atomic.Uint64           // numbers the clients
	numbers atomic.Uint64           // of sequences
	pongs   tenantlru.Map[struct{}] // the clients that have answered a ping

	mu      sync.Mutex
	clients map[Key]*client
	total   *ledger
	tenants map[string]*ledger
	closed  bool // nobody is added any more
}

func newRegistry(o Options, n *network, window func() time.Duration) *registry {
	return &registry{
		o: o, log: o.Logger, network: n, started: time.Now(), window: window,
		clients: make(map[Key]*client), total: &ledger{}, tenants: make(map[string]*ledger),
	}
}

// change runs fn on the client of k with its lock held, then settles the client. If
// the client is unknown and create is false, fn is not called.
func (r *registry) change(k Key, create bool, fn func(*client)) {
	if k.Client == "" {
		return
	}
	for {
		c := r.client(k, create)
		if c == nil {
			return
		}
		if c.change(fn) {
			return
		}
	}
}

// client returns the client of k, creating it if create is set.
func (r *registry) client(k Key, create bool) *client {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.clients[k]
	if c == nil && create && !r.closed {
		c = newClient(r, k, r.started.Add(r.window()))
		c.entry, c.line.numbers = r.entries.Add(1), &r.numbers
		// A late pong may be for an earlier entry of the client: its numbers are lower.
		c.line.to.mark, c.line.to.probe = c.entry<<32, c.entry<<32
		c.line.buffer.limits = lineLimits{
			hold: r.o.HoldBytes, spill: r.o.SpillBytes, spillDir: r.o.SpillDir, ledger: r.ledger(k.Tenant),
		}
		c.line.buffer.limits.ledger.clients++
		r.pongs.Read(k.Tenant, k.Client, func(*struct{}) { c.line.pongs = true })
		r.clients[k] = c
	}
	return c
}

// ledger returns the ledger of a tenant, creating it if necessary. The caller holds the lock.
func (r *registry) ledger(tenant string) *ledger {
	g := r.tenants[tenant]
	if g == nil {
		g = &ledger{above: r.total, part: func() bool { return r.o.Shares(tenant) }}
		r.tenants[tenant] = g
		r.total.tenants.Add(1)
	}
	return g
}

// ledgerOf returns the ledger of a client's tenant.
func (r *registry) ledgerOf(k Key) (g *ledger) {
	r.change(k, false, func(c *client) { g = c.line.buffer.limits.ledger })
	return g
}

// forget removes a client from the count of its tenant. The caller holds the lock.
func (r *registry) forget(c *client) {
	g := c.line.buffer.limits.ledger
	if g.clients--; g.clients == 0 && r.tenants[c.key.Tenant] == g {
		delete(r.tenants, c.key.Tenant)
		r.total.tenants.Add(-1)
	}
}

// hasRoom reports whether a tenant may have one more client without a socket.
func (r *registry) hasRoom(tenant string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.tenants[tenant].crowded(len(r.clients))
}

// remove removes a client, whose lock is held, from the registry.
func (r *registry) remove(c *client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.clients[c.key] == c {
		delete(r.clients, c.key)
		r.forget(c)
	}
}

// all returns all known clients.
func (r *registry) all() []*client {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*client, 0, len(r.clients))
	for _, c := range r.clients {
		all = append(all, c)
	}
	return all
}

// close makes sure that nobody is added any more.
func (r *registry) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// drop frees all clients.
func (r *registry) drop() {
	r.mu.Lock()
	all := r.clients
	r.clients = make(map[Key]*client)
	for _, c := range all {
		r.forget(c)
	}
	r.mu.Unlock()
	for _, c := range all {
		c.mu.Lock()
		c.line.detach()
		c.line.drop(func(*sequence) bool { return true })
		c.gone = true
		if c.alarm != nil {
			c.alarm.Stop()
		}
		c.mu.Unlock()
	}
}
