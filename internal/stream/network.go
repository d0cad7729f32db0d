package stream

import (
	"bytes"
	"context"
	"slices"
	"time"
)

const (
	// transportTimeout bounds one request to the other hubs.
	transportTimeout = 3 * time.Second
	// heartbeatInterval is how often a hub reports that it is alive and checks whether what it
	// knows about the others is still true.
	heartbeatInterval = 5 * time.Second
	// renewEvery is the number of heartbeats between renewals of ownership.
	renewEvery = 4
	// peerQueue is how many messages are queued while one is handled.
	peerQueue = 64
	// checkBatch is how many clients are looked up at once.
	checkBatch = 500
)

// startNetwork connects the streams with those of other hubs.
func (s *Streams) startNetwork() {
	if s.transport = s.o.Transport; s.transport == nil {
		return
	}
	s.self = s.transport.Self()
	messages := make(chan []byte, peerQueue)
	s.spawn(func() {
		defer close(messages)
		for n := range s.transport.Listen(s.ctx) {
			s.hear(n, messages)
		}
	})
	s.spawn(func() {
		for text := range messages {
			s.read(text)
		}
	})
	s.spawn(func() {
		tick := time.NewTicker(heartbeatInterval)
		defer tick.Stop()
		for n := 0; ; n++ {
			s.heartbeat(n%renewEvery == 0)
			select {
			case <-s.ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
}

// spawn runs fn in a goroutine that Close waits for.
func (s *Streams) spawn(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.network.Go(fn)
	}
}

// hear handles a notice from another hub.
func (s *Streams) hear(n Notice, messages chan<- []byte) {
	switch n.Kind {
	case Messaged:
		select {
		case messages <- n.Message:
		case <-s.ctx.Done():
		}
	case Claimed:
		if n.Owner.Hub != s.self {
			s.claimed(n.Client, n.Owner)
		}
	case Released:
		s.change(n.Client, false, func(c *client) {
			if c.owner == n.Owner && !c.ownedHere() {
				c.move(Owner{Number: n.Owner.Number})
			}
		})
	case Left:
		s.hubDied(n.Hub)
	case Resync:
		s.resync()
	}
}

// claimed hands a client over to the hub that has its newest socket.
func (s *Streams) claimed(k Key, owner Owner) {
	known := false
	s.change(k, false, func(c *client) {
		known = c.owner.Number <= owner.Number
		c.move(owner)
	})
	if !known {
		// In the background: after a hub stops, sockets arrive by the thousand.
		s.spawn(func() { s.nothing(k, owner) })
	}
}

// nothing tells a client's owner that this hub has nothing for it.
func (s *Streams) nothing(k Key, owner Owner) {
	s.sendTo(owner.Hub, peerMessage{
		kind: peerEvents, k: k, owner: owner.Number, session: s.sessions.Add(1),
		events: []runEvent{{kind: runSynced, floor: ^uint64(0)}},
	})
}

// hubDied gives up what was expected from a hub that is no longer alive.
func (s *Streams) hubDied(hub string) {
	for _, c := range s.all() {
		c.change(func(c *client) {
			c.hubDied(hub)
			if c.owner.Hub == hub && !c.ownedHere() {
				c.extend() // the client may reconnect to this hub
				c.move(Owner{Number: c.owner.Number})
			}
		})
	}
}

// all returns all known clients.
func (s *Streams) all() []*client {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*client, 0, len(s.clients))
	for _, c := range s.clients {
		all = append(all, c)
	}
	return all
}

// resync checks everything, because notices may have been missed.
func (s *Streams) resync() {
	if s.ctx.Err() != nil {
		return
	}
	s.renew()
	s.check()
	s.askAll(func(*source) bool { return true })
	s.decide()
}

// askAll makes sources of the clients that this hub owns send everything again. Whoever is asked
// takes this hub for the owner.
func (s *Streams) askAll(which func(*source) bool) {
	for _, c := range s.all() {
		asks := map[string]peerMessage{}
		c.change(func(c *client) {
			for hub, src := range c.sources {
				if c.ownedHere() && which(src) {
					asks[hub] = peerMessage{kind: peerResend, k: c.key, owner: c.owner.Number, session: src.session}
				}
			}
		})
		for hub, l := range asks {
			s.sendTo(hub, l)
		}
	}
}

// heartbeat reports that this hub is alive, and repairs what lost messages have
// left undone.
func (s *Streams) heartbeat(renew bool) {
	ctx, cancel := context.WithTimeout(s.ctx, transportTimeout)
	defer cancel()
	err := s.transport.Heartbeat(ctx)
	if s.ctx.Err() != nil {
		return // closed meanwhile, which says nothing about the others
	}
	if s.reached(err == nil); err != nil {
		return
	}
	if renew {
		s.renew()
	}
	s.check()
	s.inquire()
	s.askAll((*source).silent)
	for _, c := range s.all() {
		c.change(func(c *client) {
			if c.forwarder != nil {
				c.forwarder.push(item{control: controlHeartbeat, floor: c.line.floor()})
			}
		})
	}
	s.decide()
}

// renew extends the ownership of this hub's clients.
func (s *Streams) renew() {
	var held []Ownership
	for _, c := range s.all() {
		c.change(func(c *client) {
			if c.ownedHere() {
				held = append(held, Ownership{Client: c.key, Number: c.owner.Number, Entry: c.entry})
			}
		})
	}
	for batch := range slices.Chunk(held, checkBatch) {
		ctx, cancel := context.WithTimeout(s.ctx, transportTimeout)
		owners, err := s.transport.Renew(ctx, batch)
		cancel()
		if err != nil {
			return
		}
		for i, h := range owners {
			s.change(batch[i].Client, false, func(c *client) { c.move(h) })
		}
	}
}

// check looks up the owners of clients that have runs here but no socket.
func (s *Streams) check() {
	var away []Key
	for _, c := range s.all() {
		c.change(func(c *client) {
			if !c.ownedHere() && c.socket == nil && !c.line.empty() {
				away = append(away, c.key)
			}
		})
	}
	for batch := range slices.Chunk(away, checkBatch) {
		ctx, cancel := context.WithTimeout(s.ctx, transportTimeout)
		owners, err := s.transport.Owners(ctx, batch)
		cancel()
		if err != nil {
			return
		}
		for i, h := range owners {
			s.change(batch[i], false, func(c *client) { c.found(h) })
		}
	}
}

// found records who owns a client now; the zero Owner means nobody.
func (c *client) found(h Owner) {
	switch {
	case c.ownedHere() || c.socket != nil || h.Hub == c.streams.self:
	case h.Hub != "":
		c.move(h)
	case c.owner.Hub != "":
		c.extend()
		c.move(Owner{Number: c.owner.Number})
	}
}

// inquire detects hubs that died without leaving.
func (s *Streams) inquire() {
	var hubs []string
	for _, c := range s.all() {
		c.change(func(c *client) {
			for hub, src := range c.sources {
				if !src.broken && !slices.Contains(hubs, hub) {
					hubs = append(hubs, hub)
				}
			}
		})
	}
	if len(hubs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, transportTimeout)
	defer cancel()
	alive, err := s.transport.Alive(ctx, hubs)
	if err != nil {
		return
	}
	for i, hub := range hubs {
		if !alive[i] {
			s.hubDied(hub)
		}
	}
}

// read handles a message from another hub.
func (s *Streams) read(text []byte) {
	l, err := readPeerMessage(text)
	if err != nil {
		s.o.Logger.Warn("cannot read a message from another hub", "error", err)
		return
	}
	switch l.kind {
	case peerEvents:
		s.readEvents(&l)
	case peerResend:
		known := false
		s.change(l.k, false, func(c *client) {
			if owner := (Owner{Hub: l.from, Number: l.owner}); c.owner == owner {
				c.sendAgain(l.session)
			} else {
				c.move(owner) // this hub missed the move
			}
			known = c.forwarder != nil
		})
		if !known {
			s.nothing(l.k, Owner{Hub: l.from, Number: l.owner})
		}
	case peerReceipt:
		s.change(l.k, false, func(c *client) { c.acknowledge(l.ids) })
	case peerClientMessages:
		for i := range l.events {
			m := l.events[i].message
			m.Data = bytes.Clone(m.Data) // the client message must not keep the whole peer message in memory
			s.Send(l.k, m)
		}
	case peerFetched:
		for i := range l.events {
			s.fetched(l.k, l.events[i].jobs)
		}
	}
}

func (s *Streams) readEvents(l *peerMessage) {
	v := ignore
	s.change(l.k, false, func(c *client) { v = c.judge(l) })
	if v == accept && !s.fetchBlobs(l) {
		v = gap
		s.change(l.k, false, func(c *client) { c.spoil(l) })
	}
	var received []uint64
	if v == accept {
		s.change(l.k, false, func(c *client) {
			// The owner may have changed while a blob was fetched.
			if v = c.judge(l); v == accept {
				received = c.apply(l)
			}
		})
	}
	if len(received) > 0 {
		s.sendTo(l.from, peerMessage{kind: peerReceipt, k: l.k, owner: l.owner, ids: received})
	}
	if v == gap {
		s.ask(l)
	}
}

// spoil marks a session as broken, so that it is requested again.
func (c *client) spoil(l *peerMessage) {
	if src := c.sources[l.from]; src != nil && src.session == l.session {
		src.broken = true
	}
}

// ask makes a hub send everything again.
func (s *Streams) ask(l *peerMessage) {
	due := false
	s.change(l.k, false, func(c *client) {
		src := c.sources[l.from]
		due = src != nil && time.Since(src.asked) >= askAgainAfter
		if due {
			src.asked = time.Now()
		}
	})
	if due {
		s.sendTo(l.from, peerMessage{kind: peerResend, k: l.k, owner: l.owner, session: l.session})
	}
}

// fetchBlobs fetches the client messages that were too large to be sent inline.
func (s *Streams) fetchBlobs(l *peerMessage) bool {
	for i := range l.events {
		e := &l.events[i]
		if e.kind != runFrame || e.ref == "" {
			continue
		}
		ctx, cancel := context.WithTimeout(s.ctx, sendTimeout)
		data, err := s.transport.TakeBlob(ctx, e.ref)
		cancel()
		if err != nil {
			s.o.Logger.Debug("cannot fetch a large message from another hub", "hub", l.from, "error", err)
			return false
		}
		e.message.Data = data
	}
	return true
}

// leave tells the other hubs that this hub is stopping, so that they do not wait
// for it.
func (s *Streams) leave(ctx context.Context) {
	if s.transport == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, transportTimeout)
	defer cancel()
	if err := s.transport.Leave(ctx); err != nil {
		s.o.Logger.Debug("cannot tell other hubs that this hub is stopping", "error", err)
	}
}
