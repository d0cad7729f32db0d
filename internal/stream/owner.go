package stream

import (
	"context"
	"slices"
	"time"
)

// This file determines which hub owns a client. The owner has the client's socket
// and holds its line; every other hub sends the events of its runs there.

// handoverTimeout bounds how long a new socket waits for the other hubs' events for
// its client. What ended there must be shown before what runs here.
const handoverTimeout = 500 * time.Millisecond

// ownedHere reports whether this hub owns the client.
func (c *client) ownedHere() bool {
	return c.owner.Hub != "" && c.owner.Hub == c.streams.self
}

// move switches the client to the owner reported by h.
func (c *client) move(h Owner) {
	if h.Number < c.owner.Number || h == c.owner && (c.ownedHere() || c.socket != nil || c.forwarder != nil || h.Hub == "") {
		return
	}
	if c.undecided() && h.Hub != "" && h.Hub != c.streams.self {
		c.owner = h // which socket is newer is for a claim to say
		return
	}
	c.moved(h)
}

// moved switches the client to an owner that is certain.
func (c *client) moved(h Owner) {
	c.owner = h
	c.stopForwarder()
	switch h.Hub {
	case c.streams.self:
	case "":
		c.dropRemote() // nobody owns it, so this hub must not hold it
	default:
		if w := c.socket; w != nil {
			// A newer socket has taken over at another hub.
			c.noteWritten()
			w.mute()
			c.socket = nil
			c.line.detach()
		}
		c.dropRemote()
		c.startForwarder()
	}
}

// startForwarder sends everything that is kept, and everything from now on, to the
// client's owner.
func (c *client) startForwarder() {
	c.forwarder = c.streams.newForwarder(c.key, c.owner)
	c.line.forward(c.forwarder.push)
	c.forwarder.push(item{control: controlSynced, floor: c.line.floor(), jobs: slices.Clone(c.recent)})
}

func (c *client) stopForwarder() {
	if c.forwarder == nil {
		return
	}
	c.forwarder.cancel()
	c.forwarder = nil
	c.line.recall()
}

// sendAgain sends everything that is kept again, unless a newer session has already
// replaced the one that lost something.
func (c *client) sendAgain(session uint64) {
	if c.forwarder == nil || c.forwarder.session != session {
		return
	}
	c.stopForwarder()
	c.startForwarder()
}

// acknowledge drops runs that the client has received from its owner.
func (c *client) acknowledge(ids []uint64) {
	for _, id := range ids {
		c.line.drop(func(q *sequence) bool { return q.over && q.remote == nil && q.id == id })
	}
}

// answered records that a hub has handed over everything it has.
func (c *client) answered(hub string, owner int64) {
	if c.answers == nil {
		c.answers = map[string]int64{}
	}
	c.answers[hub] = owner
	c.signalHandover()
}

func (c *client) signalHandover() {
	close(c.handoverSignal())
	c.handover = nil
}

// handoverSignal is closed when a hub has handed over or a claim has ended.
func (c *client) handoverSignal() chan struct{} {
	if c.handover == nil {
		c.handover = make(chan struct{})
	}
	return c.handover
}

// arrive makes w the newest socket of its client. It connects the socket once this
// hub owns the client and the others have handed over.
func (s *Streams) arrive(ctx context.Context, w *socket, k Key, live bool) {
	if s.transport == nil {
		s.change(k, true, func(c *client) {
			c.attach(w, live)
			c.opened()
		})
		return
	}
	s.change(k, true, func(c *client) { c.latest = max(c.latest, w.arrival) })
	owner, err := s.claim(ctx, k, w)
	if err != nil {
		s.o.Logger.Debug("cannot tell other hubs of a client's socket", "error", err)
	}
	s.change(k, false, func(c *client) {
		defer c.opened()
		if ctx.Err() != nil {
			return // the socket has closed meanwhile
		}
		if c.latest != w.arrival || err == nil && (owner.Hub != s.self || c.owner != owner) {
			w.mute() // a newer socket was faster, here or at another hub
			return
		}
		c.attach(w, live)
	})
}

// claim makes this hub, where w has opened, the client's owner and waits briefly for the others to
// hand over. If another hub has a newer socket, it returns that one as the owner.
func (s *Streams) claim(ctx context.Context, k Key, w *socket) (Owner, error) {
	wanted := Ownership{Client: k, Age: time.Since(w.opened)}
	s.change(k, true, func(c *client) {
		c.claiming++
		wanted.Number, wanted.Entry = c.owner.Number, c.entry
	})
	ask, cancel := context.WithTimeout(ctx, transportTimeout)
	defer cancel()
	claim, err := s.transport.Claim(ask, wanted)
	s.change(k, true, func(c *client) {
		c.claiming = max(c.claiming-1, 0) // the client may have been forgotten meanwhile
		switch {
		case err != nil:
		case claim.Hub == s.self:
			w.claimed = true
			c.move(claim.Owner)
		case c.socket != nil && c.socket.arrival > w.arrival:
			c.move(claim.Owner) // says nothing about that one
		case claim.Number >= c.owner.Number:
			c.moved(claim.Owner)
		}
		if claim.Moved {
			c.awaited = claim.Others
		}
		c.signalHandover()
	})
	if err != nil {
		return Owner{}, err
	}
	if claim.Hub != s.self {
		return claim.Owner, nil
	}
	s.await(ctx, k, claim.Owner)
	if claim.Moved {
		s.o.Arrived(ctx, k)
	}
	return claim.Owner, nil
}

// await waits until the hubs that know of the new owner have handed over. It also
// covers a second socket that arrives meanwhile.
func (s *Streams) await(ctx context.Context, k Key, owner Owner) {
	late := time.NewTimer(handoverTimeout)
	defer late.Stop()
	over := false
	for {
		var news chan struct{}
		s.change(k, false, func(c *client) {
			if c.owner != owner {
				return // the client has moved on
			}
			if over || c.handedOver(owner) {
				c.awaited = 0
			}
			if c.awaited > 0 || c.claiming > 0 && !over {
				news = c.handoverSignal()
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

// handedOver reports whether all expected hubs have answered.
func (c *client) handedOver(owner Owner) bool {
	n := 0
	for _, number := range c.answers {
		if number >= owner.Number {
			n++
		}
	}
	return n >= c.awaited
}

// findOwner looks up who owns a client that has events to be sent, unless that is
// known. The client is kept meanwhile.
func (c *client) findOwner() {
	s := c.streams
	if s.transport == nil || c.finding || c.owner.Hub != "" || c.socket != nil {
		return
	}
	c.finding = true
	s.spawn(func() {
		ctx, cancel := context.WithTimeout(s.ctx, transportTimeout)
		defer cancel()
		owners, err := s.transport.Owners(ctx, []Key{c.key})
		c.change(func(c *client) {
			c.finding = false
			if err == nil && owners[0].Hub != s.self {
				c.move(owners[0])
			}
		})
	})
}

// release gives up the ownership of a client that nothing is known about any more.
func (c *client) release() {
	if c.forwarder != nil {
		c.forwarder.finish()
	}
	if !c.ownedHere() {
		return
	}
	s, held := c.streams, Ownership{Client: c.key, Number: c.owner.Number, Entry: c.entry}
	s.spawn(func() {
		ctx, cancel := context.WithTimeout(s.ctx, transportTimeout)
		defer cancel()
		if err := s.transport.Release(ctx, held); err != nil {
			s.o.Logger.Debug("cannot give up the ownership of a client", "error", err)
		}
	})
}

// receipts tells the hubs that ran the prompts that the client has received them
// completely.
func (s *Streams) receipts(k Key, owner int64, received map[string][]uint64) {
	for hub, ids := range received {
		s.sendTo(hub, peerMessage{kind: peerReceipt, k: k, owner: owner, ids: ids})
	}
}

// tellOwners reports what clients have fetched here to the hubs that own them.
func (s *Streams) tellOwners(clients []Key, prompts []string) {
	if s.transport == nil || len(clients) == 0 {
		return
	}
	s.spawn(func() {
		ctx, cancel := context.WithTimeout(s.ctx, transportTimeout)
		defer cancel()
		owners, err := s.transport.Owners(ctx, clients)
		if err != nil {
			s.o.Logger.Debug("cannot find the hub that owns a client", "error", err)
			return
		}
		for i, owner := range owners {
			if owner.Hub == "" || owner.Hub == s.self {
				continue
			}
			s.sendTo(owner.Hub, peerMessage{
				kind: peerFetched, k: clients[i], owner: owner.Number,
				events: []runEvent{{kind: runSynced, jobs: prompts}},
			})
		}
	})
}

// Knows reports whether the client has a socket at any hub, or had one within the
// replay window.
func (s *Streams) Knows(ctx context.Context, k Key) (known bool) {
	s.change(k, false, func(*client) { known = true })
	if known || s.transport == nil || k.Client == "" {
		return known
	}
	ctx, cancel := context.WithTimeout(ctx, transportTimeout)
	defer cancel()
	owners, err := s.transport.Owners(ctx, []Key{k})
	return err == nil && owners[0].Hub != ""
}

// Pass sends a message that belongs to no run to the client's socket, whichever hub has it. Without
// a socket it is dropped, unless one is being opened: then it is held.
func (s *Streams) Pass(ctx context.Context, k Key, m Message) {
	here := s.transport == nil
	s.change(k, false, func(c *client) { here = here || c.socket != nil || c.opening > 0 || c.ownedHere() })
	if here {
		s.Send(k, m)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, transportTimeout)
	defer cancel()
	owners, err := s.transport.Owners(ctx, []Key{k})
	if err != nil || owners[0].Hub == "" || len(m.Data) > inlineBytes {
		return
	}
	s.sendTo(owners[0].Hub, peerMessage{
		kind: peerClientMessages, k: k, owner: owners[0].Number, events: []runEvent{{kind: runFrame, message: m}},
	})
}

// sendTo sends a message once. The receiver asks again for what gets lost.
func (s *Streams) sendTo(hub string, l peerMessage) {
	l.from = s.self
	ctx, cancel := context.WithTimeout(s.ctx, transportTimeout)
	defer cancel()
	if err := s.transport.Send(ctx, hub, l.appendTo(nil)); err != nil {
		s.o.Logger.Debug("cannot send to another hub", "hub", hub, "error", err)
	}
}
