package stream

import (
	"context"
	"slices"
)

// This file determines which hub owns a client. The owner has the client's socket
// and holds its line; every other hub sends the events of its runs there.

// ownedHere reports whether this hub owns the client.
func (c *client) ownedHere() bool {
	return c.owner.Hub != "" && c.owner.Hub == c.network.self
}

// move switches the client to the owner reported by h.
func (c *client) move(h Owner) {
	if h.Number < c.owner.Number || h == c.owner && (c.ownedHere() || c.socket != nil || c.forwarder != nil || h.Hub == "") {
		return
	}
	if c.undecided() && h.Hub != "" && h.Hub != c.network.self {
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
	case c.network.self:
	case "":
		c.remotes.drop() // nobody owns it, so this hub must not hold it
	default:
		if w := c.socket; w != nil {
			// A newer socket has taken over at another hub.
			c.noteWritten()
			w.mute()
			c.socket = nil
			c.line.detach()
		}
		c.remotes.drop()
		c.startForwarder()
	}
}

// startForwarder sends everything that is kept, and everything from now on, to the
// client's owner.
func (c *client) startForwarder() {
	c.forwarder = c.network.newForwarder(c.key, c.owner, func(session uint64) {
		c.change(func(c *client) { c.sendAgain(session) })
	})
	c.line.forward(c.forwarder.push)
	c.forwarder.push(item{control: controlSynced, floor: c.line.lists.floor(), jobs: slices.Clone(c.fences.recent)})
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

// undecided reports whether the client has a socket here with which this hub could not become its
// owner yet. It may have been the owner with an earlier socket, and still be so as far as it knows.
// Another hub that claims to be the owner may have had a socket of the client before or after this
// one, so nothing follows from that.
func (c *client) undecided() bool {
	return c.socket != nil && !(c.socket.claimed && c.ownedHere())
}

// findOwner looks up who owns a client that has events to be sent, unless that is
// known. The client is kept meanwhile.
func (c *client) findOwner() {
	n := c.network
	if n.alone() || c.finding || c.owner.Hub != "" || c.socket != nil {
		return
	}
	c.finding = true
	n.spawn(func() {
		owners, err := n.owners(n.ctx, c.key)
		c.change(func(c *client) {
			c.finding = false
			if err == nil && owners[0].Hub != n.self {
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
	n, held := c.network, Ownership{Client: c.key, Number: c.owner.Number, Entry: c.entry}
	n.spawn(func() {
		n.try(n.ctx, "cannot give up the ownership of a client", func(ctx context.Context) error { return n.transport.Release(ctx, held) })
	})
}
