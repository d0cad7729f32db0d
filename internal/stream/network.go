package stream

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// transportTimeout bounds one request to the other hubs.
	transportTimeout = 3 * time.Second
	// checkBatch is how many clients are looked up at once.
	checkBatch = 500
)

// network is the way to the other hubs: every request is bounded in time, and whatever goes on in
// the background has ended when it is closed.
type network struct {
	transport Transport // nil without other hubs
	self      string
	log       *slog.Logger
	// queueBytes bounds what waits to be sent to the owner of one client.
	queueBytes int64
	ctx        context.Context // ends with the grace period of Close
	sessions   atomic.Uint64   // of forwarders

	mu      sync.Mutex
	over    bool // nothing more may be spawned
	running sync.WaitGroup
}

func newNetwork(ctx context.Context, o Options) *network {
	n := &network{transport: o.Transport, log: o.Logger, queueBytes: o.SocketBytes, ctx: ctx}
	if n.transport != nil {
		n.self = n.transport.Self()
	}
	return n
}

// alone reports whether there are no other hubs.
func (n *network) alone() bool { return n.transport == nil }

// spawn runs fn in a goroutine that close waits for.
func (n *network) spawn(fn func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.over {
		n.running.Go(fn)
	}
}

// close waits for what goes on; the context has ended.
func (n *network) close() {
	n.mu.Lock()
	n.over = true
	n.mu.Unlock()
	n.running.Wait()
}

// owners looks up the owners of clients.
func (n *network) owners(ctx context.Context, clients ...Key) ([]Owner, error) {
	ctx, cancel := context.WithTimeout(ctx, transportTimeout)
	defer cancel()
	return n.transport.Owners(ctx, clients)
}

// send sends a message once. The receiver asks again for what gets lost.
func (n *network) send(hub string, l peerMessage) {
	l.from = n.self
	n.try(n.ctx, "cannot send to another hub", func(ctx context.Context) error { return n.transport.Send(ctx, hub, l.appendTo(nil)) }, "hub", hub)
}

// try makes a request once; what fails is made good by a later one.
func (n *network) try(ctx context.Context, failed string, do func(context.Context) error, attrs ...any) {
	ctx, cancel := context.WithTimeout(ctx, transportTimeout)
	defer cancel()
	if err := do(ctx); err != nil {
		n.log.Debug(failed, append(attrs, "error", err)...)
	}
}

// nothing tells a client's owner that this hub has nothing for it.
func (n *network) nothing(k Key, owner Owner) {
	n.send(owner.Hub, peerMessage{
		kind: peerEvents, k: k, owner: owner.Number, session: n.sessions.Add(1),
		events: []runEvent{{kind: runSynced, floor: ^uint64(0)}},
	})
}

// receipts tells the hubs that ran the prompts that the client has received them
// completely.
func (n *network) receipts(k Key, owner int64, received map[string][]uint64) {
	for hub, ids := range received {
		n.send(hub, peerMessage{kind: peerReceipt, k: k, owner: owner, ids: ids})
	}
}

// fetchBlobs fetches the client messages that were too large to be sent inline.
func (n *network) fetchBlobs(l *peerMessage) bool {
	for i := range l.events {
		e := &l.events[i]
		if e.kind != runFrame || e.ref == "" {
			continue
		}
		ctx, cancel := context.WithTimeout(n.ctx, sendTimeout)
		data, err := n.transport.TakeBlob(ctx, e.ref)
		cancel()
		if err != nil {
			n.log.Debug("cannot fetch a large message from another hub", "hub", l.from, "error", err)
			return false
		}
		e.message.Data = data
	}
	return true
}

// leave tells the other hubs that this hub is stopping, so that they do not wait
// for it.
func (n *network) leave(ctx context.Context) {
	if !n.alone() {
		n.try(ctx, "cannot tell other hubs that this hub is stopping", n.transport.Leave)
	}
}
