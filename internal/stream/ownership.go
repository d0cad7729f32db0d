package stream

import (
	"context"
	"slices"
	"sync"
	"time"
)

// maxDeciding is how many clients are claimed at the same time: each claim waits for other hubs,
// and after an outage there may be many.
const maxDeciding = 64

// ownership keeps one law between hubs: the hub with a client's newest socket is the client's owner,
// and only the owner shows it anything.
type ownership struct {
	clients *registry
	network *network
	// arrived is [Options.Arrived].
	arrived func(ctx context.Context, k Key)
}

// arrive makes w the newest socket of its client. It connects the socket once this
// hub owns the client and the others have handed over.
func (o *ownership) arrive(ctx context.Context, w *socket, k Key, live bool) {
	if o.network.alone() {
		o.clients.change(k, true, func(c *client) {
			c.attach(w, live)
			c.opened()
		})
		return
	}
	o.clients.change(k, true, func(c *client) { c.latest = max(c.latest, w.arrival) })
	owner, err := o.claim(ctx, k, w)
	if err != nil {
		o.network.log.Debug("cannot tell other hubs of a client's socket", "error", err)
	}
	o.clients.change(k, false, func(c *client) {
		defer c.opened()
		if ctx.Err() != nil {
			return // the socket has closed meanwhile
		}
		if c.latest != w.arrival || err == nil && (owner.Hub != o.network.self || c.owner != owner) {
			w.mute() // a newer socket was faster, here or at another hub
			return
		}
		c.attach(w, live)
	})
}

// claim makes this hub, where w has opened, the client's owner and waits briefly for the others to
// hand over. If another hub has a newer socket, it returns that one as the owner.
func (o *ownership) claim(ctx context.Context, k Key, w *socket) (Owner, error) {
	wanted := Ownership{Client: k, Age: time.Since(w.opened)}
	o.clients.change(k, true, func(c *client) {
		c.handover.claiming++
		wanted.Number, wanted.Entry = c.owner.Number, c.entry
	})
	ask, cancel := context.WithTimeout(ctx, transportTimeout)
	defer cancel()
	claim, err := o.network.transport.Claim(ask, wanted)
	o.clients.change(k, true, func(c *client) {
		c.handover.claiming = max(c.handover.claiming-1, 0) // the client may have been forgotten meanwhile
		switch {
		case err != nil:
		case claim.Hub == o.network.self:
			w.claimed = true
			c.move(claim.Owner)
		case c.socket != nil && c.socket.arrival > w.arrival:
			c.move(claim.Owner) // says nothing about that one
		case claim.Number >= c.owner.Number:
			c.moved(claim.Owner)
		}
		if claim.Moved {
			c.handover.awaited = claim.Others
		}
		c.handover.signal()
	})
	if err != nil {
		return Owner{}, err
	}
	if claim.Hub != o.network.self {
		return claim.Owner, nil
	}
	o.await(ctx, k, claim.Owner)
	if claim.Moved {
		o.arrived(ctx, k)
	}
	return claim.Owner, nil
}

// await waits until the hubs that know of the new owner have handed over. It also
// covers a second socket that arrives meanwhile.
func (o *ownership) await(ctx context.Context, k Key, owner Owner) {
	late := time.NewTimer(handoverTimeout)
	defer late.Stop()
	over := false
	for {
		var news chan struct{}
		o.clients.change(k, false, func(c *client) {
			if c.owner == owner { // else the client has moved on
				news = c.handover.news(owner, over)
			}
		})
		if news == nil {
			return
		}
		select {
		case <-news:
		case <-late.C:
			over = true
		case <-ctx.Done():
			return
		}
	}
}

// claimed hands a client over to the hub that has its newest socket.
func (o *ownership) claimed(k Key, owner Owner) {
	known := false
	o.clients.change(k, false, func(c *client) {
		known = c.owner.Number <= owner.Number
		c.move(owner)
	})
	if !known {
		// In the background: after a hub stops, sockets arrive by the thousand.
		o.network.spawn(func() { o.network.nothing(k, owner) })
	}
}

// decide claims the clients that are undecided. The hub with the newest socket then becomes the
// owner.
func (o *ownership) decide() {
	var all sync.WaitGroup
	slots := make(chan struct{}, maxDeciding)
	for _, c := range o.clients.all() {
		var w *socket
		c.change(func(c *client) {
			if c.undecided() && c.handover.claiming == 0 {
				w = c.socket
			}
		})
		if w == nil {
			continue
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			_, _ = o.claim(o.network.ctx, c.key, w) // if it fails, the next heartbeat tries again
		})
	}
	all.Wait()
}

// hubDied gives up what was expected from a hub that is no longer alive.
func (o *ownership) hubDied(hub string) {
	for _, c := range o.clients.all() {
		c.change(func(c *client) {
			c.remotes.hubDied(hub)
			if c.owner.Hub == hub && !c.ownedHere() {
				c.extend() // the client may reconnect to this hub
				c.move(Owner{Number: c.owner.Number})
			}
		})
	}
}

// renew extends the ownership of this hub's clients.
func (o *ownership) renew() {
	var held []Ownership
	for _, c := range o.clients.all() {
		c.change(func(c *client) {
			if c.ownedHere() {
				held = append(held, Ownership{Client: c.key, Number: c.owner.Number, Entry: c.entry})
			}
		})
	}
	for batch := range slices.Chunk(held, checkBatch) {
		ctx, cancel := context.WithTimeout(o.network.ctx, transportTimeout)
		owners, err := o.network.transport.Renew(ctx, batch)
		cancel()
		if err != nil {
			return
		}
		for i, h := range owners {
			o.clients.change(batch[i].Client, false, func(c *client) { c.move(h) })
		}
	}
}

// check looks up the owners of clients that have runs here but no socket.
func (o *ownership) check() {
	var away []Key
	for _, c := range o.clients.all() {
		c.change(func(c *client) {
			if !c.ownedHere() && c.socket == nil && !c.line.lists.empty() {
				away = append(away, c.key)
			}
		})
	}
	for batch := range slices.Chunk(away, checkBatch) {
		owners, err := o.network.owners(o.network.ctx, batch...)
		if err != nil {
			return
		}
		for i, h := range owners {
			o.clients.change(batch[i], false, func(c *client) { o.found(c, h) })
		}
	}
}

// found records who owns a client now; the zero Owner means nobody.
func (o *ownership) found(c *client, h Owner) {
	switch {
	case c.ownedHere() || c.socket != nil || h.Hub == o.network.self:
	case h.Hub != "":
		c.move(h)
	case c.owner.Hub != "":
		c.extend()
		c.move(Owner{Number: c.owner.Number})
	}
}

// tell reports what clients have fetched here to the hubs that own them.
func (o *ownership) tell(clients []Key, prompts []string) {
	if o.network.alone() || len(clients) == 0 {
		return
	}
	o.network.spawn(func() {
		owners, err := o.network.owners(o.network.ctx, clients...)
		if err != nil {
			o.network.log.Debug("cannot find the hub that owns a client", "error", err)
			return
		}
		for i, owner := range owners {
			if owner.Hub == "" || owner.Hub == o.network.self {
				continue
			}
			o.network.send(owner.Hub, peerMessage{
				kind: peerFetched, k: clients[i], owner: owner.Number,
				events: []runEvent{{kind: runSynced, jobs: prompts}},
			})
		}
	})
}
