package stream

import (
	"bytes"
	"time"
)

// inbox handles the messages of other hubs. Those of one client's runs count only from the owner's
// point of view, and in their order; what is missing is asked for again.
type inbox struct {
	clients *registry
	network *network
	// pass gives a client a message that belongs to no run, and fetched takes receipts.
	pass    func(Key, Message)
	fetched func(Key, []string)
}

// read handles a message from another hub.
func (x *inbox) read(text []byte) {
	l, err := readPeerMessage(text)
	if err != nil {
		x.network.log.Warn("cannot read a message from another hub", "error", err)
		return
	}
	switch l.kind {
	case peerEvents:
		x.readEvents(&l)
	case peerResend:
		known := false
		x.clients.change(l.k, false, func(c *client) {
			if owner := (Owner{Hub: l.from, Number: l.owner}); c.owner == owner {
				c.sendAgain(l.session)
			} else {
				c.move(owner) // this hub missed the move
			}
			known = c.forwarder != nil
		})
		if !known {
			x.network.nothing(l.k, Owner{Hub: l.from, Number: l.owner})
		}
	case peerReceipt:
		x.clients.change(l.k, false, func(c *client) {
			for _, id := range l.ids {
				c.line.drop(func(q *sequence) bool { return q.over && q.remote == nil && q.id == id })
			}
		})
	case peerClientMessages:
		for i := range l.events {
			m := l.events[i].message
			m.Data = bytes.Clone(m.Data) // the client message must not keep the whole peer message in memory
			x.pass(l.k, m)
		}
	case peerFetched:
		for i := range l.events {
			x.fetched(l.k, l.events[i].jobs)
		}
	}
}

func (x *inbox) readEvents(l *peerMessage) {
	v := ignore
	x.clients.change(l.k, false, func(c *client) { v = c.remotes.judge(l, c.owner.Number) })
	if v == accept && !x.network.fetchBlobs(l) {
		v = gap
		x.clients.change(l.k, false, func(c *client) { c.remotes.spoil(l) })
	}
	var received []uint64
	if v == accept {
		x.clients.change(l.k, false, func(c *client) {
			// The owner may have changed while a blob was fetched.
			if v = c.remotes.judge(l, c.owner.Number); v != accept {
				return
			}
			var synced bool
			if received, synced = c.remotes.apply(l); synced {
				c.handover.answered(l.from, l.owner)
			}
		})
	}
	if len(received) > 0 {
		x.network.send(l.from, peerMessage{kind: peerReceipt, k: l.k, owner: l.owner, ids: received})
	}
	if v == gap {
		x.ask(l)
	}
}

// ask makes a hub send everything again.
func (x *inbox) ask(l *peerMessage) {
	due := false
	x.clients.change(l.k, false, func(c *client) {
		src := c.remotes.sources[l.from]
		due = src != nil && time.Since(src.asked) >= askAgainAfter
		if due {
			src.asked = time.Now()
		}
	})
	if due {
		x.network.send(l.from, peerMessage{kind: peerResend, k: l.k, owner: l.owner, session: l.session})
	}
}

// askAll makes sources of the clients that this hub owns send everything again. Whoever is asked
// takes this hub for the owner.
func (x *inbox) askAll(which func(*source) bool) {
	for _, c := range x.clients.all() {
		asks := map[string]peerMessage{}
		c.change(func(c *client) {
			for hub, src := range c.remotes.sources {
				if c.ownedHere() && which(src) {
					asks[hub] = peerMessage{kind: peerResend, k: c.key, owner: c.owner.Number, session: src.session}
				}
			}
		})
		for hub, l := range asks {
			x.network.send(hub, l)
		}
	}
}
