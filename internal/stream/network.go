package stream

import (
	"bytes"
	"context"
	"slices"
	"time"
)

const (
	// carrierTimeout bounds one question to the other hubs.
	carrierTimeout = 3 * time.Second
	// beatInterval is how often a hub says that it lives, and looks whether
	// what it knows of the others is still true.
	beatInterval = 5 * time.Second
	// renewEvery beats the homes of clients are prolonged.
	renewEvery = 4
	// letterQueue is how many letters wait while one is read.
	letterQueue = 64
	// checkBatch is how many clients are asked about at once.
	checkBatch = 500
)

// startNetwork connects the streams with those of other hubs.
func (s *Streams) startNetwork() {
	if s.carrier = s.o.Carrier; s.carrier == nil {
		return
	}
	s.self = s.carrier.Self()
	letters := make(chan []byte, letterQueue)
	s.spawn(func() {
		defer close(letters)
		for n := range s.carrier.Listen(s.ctx) {
			s.hear(n, letters)
		}
	})
	s.spawn(func() {
		for text := range letters {
			s.read(text)
		}
	})
	s.spawn(func() {
		tick := time.NewTicker(beatInterval)
		defer tick.Stop()
		for n := 0; ; n++ {
			s.beat(n%renewEvery == 0)
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

// hear acts on what another hub tells.
func (s *Streams) hear(n Notice, letters chan<- []byte) {
	switch n.Kind {
	case Mailed:
		select {
		case letters <- n.Letter:
		case <-s.ctx.Done():
		}
	case Claimed:
		if n.Home.Hub != s.self {
			s.claimed(n.Client, n.Home)
		}
	case Released:
		s.change(n.Client, false, func(c *client) {
			if c.home == n.Home && !c.here() {
				c.move(Home{Number: n.Home.Number})
			}
		})
	case Left:
		s.died(n.Hub)
	case Resync:
		s.resync()
	}
}

// claimed hands a client over to the hub that has its newest socket.
func (s *Streams) claimed(k Key, home Home) {
	known := false
	s.change(k, false, func(c *client) {
		known = c.home.Number <= home.Number
		c.move(home)
	})
	if !known {
		// Not here: sockets come by the thousand after a hub has stopped.
		s.spawn(func() { s.nothing(k, home) })
	}
}

// nothing tells a client's home that this hub has nothing for it.
func (s *Streams) nothing(k Key, home Home) {
	s.mail(home.Hub, letter{
		kind: letterEvents, k: k, home: home.Number, session: s.sessions.Add(1),
		events: []event{{kind: eventSynced, floor: ^uint64(0)}},
	})
}

// died gives up what was expected of a hub that does not live any more.
func (s *Streams) died(hub string) {
	for _, c := range s.all() {
		c.change(func(c *client) {
			c.die(hub)
			if c.home.Hub == hub && !c.here() {
				c.extend() // it may come here
				c.move(Home{Number: c.home.Number})
			}
		})
	}
}

// all is every client that is known now.
func (s *Streams) all() []*client {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*client, 0, len(s.clients))
	for _, c := range s.clients {
		all = append(all, c)
	}
	return all
}

// resync looks at everything: notices may have been missed.
func (s *Streams) resync() {
	if s.ctx.Err() != nil {
		return
	}
	s.renew()
	s.check()
	s.askAll(func(*source) bool { return true })
}

// askAll makes sources send everything anew.
func (s *Streams) askAll(which func(*source) bool) {
	for _, c := range s.all() {
		asks := map[string]letter{}
		c.change(func(c *client) {
			for hub, src := range c.sources {
				if which(src) {
					asks[hub] = letter{kind: letterAgain, k: c.key, home: c.home.Number, session: src.session}
				}
			}
		})
		for hub, l := range asks {
			s.mail(hub, l)
		}
	}
}

// beat says that this hub lives, and repairs what lost messages have left
// undone.
func (s *Streams) beat(renew bool) {
	ctx, cancel := context.WithTimeout(s.ctx, carrierTimeout)
	defer cancel()
	if s.carrier.Beat(ctx) != nil {
		return
	}
	if renew {
		s.renew()
	}
	s.check()
	s.inquire()
	s.askAll((*source).silent)
	for _, c := range s.all() {
		homeless := false
		c.change(func(c *client) {
			if c.courier != nil {
				c.courier.push(item{note: noteBeat, floor: c.line.floor()})
			}
			homeless = c.socket != nil && !c.here()
		})
		if homeless {
			// Its claim had failed.
			_, _ = s.claim(s.ctx, c.key)
		}
	}
}

// renew keeps this hub the home of its clients.
func (s *Streams) renew() {
	var held []Held
	for _, c := range s.all() {
		c.change(func(c *client) {
			if c.here() {
				held = append(held, Held{Client: c.key, Number: c.home.Number, Entry: c.entry})
			}
		})
	}
	for batch := range slices.Chunk(held, checkBatch) {
		ctx, cancel := context.WithTimeout(s.ctx, carrierTimeout)
		homes, err := s.carrier.Renew(ctx, batch)
		cancel()
		if err != nil {
			return
		}
		for i, h := range homes {
			s.change(batch[i].Client, false, func(c *client) { c.move(h) })
		}
	}
}

// check finds out where the clients are that have runs here and no socket.
func (s *Streams) check() {
	var away []Key
	for _, c := range s.all() {
		c.change(func(c *client) {
			if !c.here() && c.socket == nil && !c.line.empty() {
				away = append(away, c.key)
			}
		})
	}
	for batch := range slices.Chunk(away, checkBatch) {
		ctx, cancel := context.WithTimeout(s.ctx, carrierTimeout)
		homes, err := s.carrier.Homes(ctx, batch)
		cancel()
		if err != nil {
			return
		}
		for i, h := range homes {
			s.change(batch[i], false, func(c *client) { c.found(h) })
		}
	}
}

// found takes in where a client is as of now; the zero Home is nowhere.
func (c *client) found(h Home) {
	switch {
	case c.here() || c.socket != nil || h.Hub == c.streams.self:
	case h.Hub != "":
		c.move(h)
	case c.home.Hub != "":
		c.extend()
		c.move(Home{Number: c.home.Number})
	}
}

// inquire finds hubs that have died without a word.
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
	ctx, cancel := context.WithTimeout(s.ctx, carrierTimeout)
	defer cancel()
	alive, err := s.carrier.Alive(ctx, hubs)
	if err != nil {
		return
	}
	for i, hub := range hubs {
		if !alive[i] {
			s.died(hub)
		}
	}
}

// read takes in a letter of another hub.
func (s *Streams) read(text []byte) {
	l, err := readLetter(text)
	if err != nil {
		s.o.Logger.Warn("a letter of another hub cannot be read", "error", err)
		return
	}
	switch l.kind {
	case letterEvents:
		s.readEvents(&l)
	case letterAgain:
		known := false
		s.change(l.k, false, func(c *client) {
			if home := (Home{Hub: l.from, Number: l.home}); c.home == home {
				c.sendAgain(l.session)
			} else {
				c.move(home) // this hub has missed that
			}
			known = c.courier != nil
		})
		if !known {
			s.nothing(l.k, Home{Hub: l.from, Number: l.home})
		}
	case letterReceipt:
		s.change(l.k, false, func(c *client) { c.acknowledge(l.ids) })
	case letterMessage:
		for i := range l.events {
			m := l.events[i].message
			m.Data = bytes.Clone(m.Data) // a letter must not stay for one of its messages
			s.Broadcast(l.k, m)
		}
	case letterFetched:
		for i := range l.events {
			s.fetched(l.k, l.events[i].jobs)
		}
	}
}

func (s *Streams) readEvents(l *letter) {
	v := ignore
	s.change(l.k, false, func(c *client) { v = c.judge(l) })
	if v == accept && !s.collect(l) {
		v = gap
		s.change(l.k, false, func(c *client) { c.spoil(l) })
	}
	var received []uint64
	if v == accept {
		s.change(l.k, false, func(c *client) {
			// The home may have moved while a large message was collected.
			if v = c.judge(l); v == accept {
				received = c.apply(l)
			}
		})
	}
	if len(received) > 0 {
		s.mail(l.from, letter{kind: letterReceipt, k: l.k, home: l.home, ids: received})
	}
	if v == gap {
		s.ask(l)
	}
}

// spoil makes a session be asked for anew.
func (c *client) spoil(l *letter) {
	if src := c.sources[l.from]; src != nil && src.session == l.session {
		src.broken = true
	}
}

// ask makes a hub send everything anew.
func (s *Streams) ask(l *letter) {
	due := false
	s.change(l.k, false, func(c *client) {
		src := c.sources[l.from]
		due = src != nil && time.Since(src.asked) >= askAgainAfter
		if due {
			src.asked = time.Now()
		}
	})
	if due {
		s.mail(l.from, letter{kind: letterAgain, k: l.k, home: l.home, session: l.session})
	}
}

// collect fetches the large messages of a letter.
func (s *Streams) collect(l *letter) bool {
	for i := range l.events {
		e := &l.events[i]
		if e.kind != eventFrame || e.ref == "" {
			continue
		}
		ctx, cancel := context.WithTimeout(s.ctx, mailTimeout)
		data, err := s.carrier.Collect(ctx, e.ref)
		cancel()
		if err != nil {
			s.o.Logger.Debug("cannot fetch a large message of another hub", "hub", l.from, "error", err)
			return false
		}
		e.message.Data = data
	}
	return true
}

// leave tells the others that this hub stops, so that they do not wait for it.
func (s *Streams) leave(ctx context.Context) {
	if s.carrier == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, carrierTimeout)
	defer cancel()
	if err := s.carrier.Leave(ctx); err != nil {
		s.o.Logger.Debug("cannot tell other hubs of the end", "error", err)
	}
}
