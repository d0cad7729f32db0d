package stream

import (
	"context"
	"slices"
	"time"
)

// This file is where a client is at home: the hub that has its socket holds
// its line, and every other hub sends what its runs say there.

// handoverTimeout bounds how long a new socket waits for what other hubs have
// for its client: what ended there is to be shown before what runs here.
const handoverTimeout = 500 * time.Millisecond

// here reports whether this hub is the client's home.
func (c *client) here() bool {
	return c.home.Hub != "" && c.home.Hub == c.streams.self
}

// move follows the client to its home, as this hub has heard of it.
func (c *client) move(h Home) {
	if h.Number < c.home.Number || h == c.home && (c.here() || c.socket != nil || c.courier != nil || h.Hub == "") {
		return
	}
	c.home = h
	c.stopCourier()
	switch h.Hub {
	case c.streams.self:
	case "":
		c.dropForeign() // it is nobody's, and so not this hub's to hold
	default:
		if w := c.socket; w != nil {
			// A newer one has taken over, at another hub.
			c.note()
			w.mute()
			c.socket = nil
			c.line.detach()
		}
		c.dropForeign()
		c.startCourier()
	}
}

// startCourier sends all that is kept, and everything from now on, to the
// client's home.
func (c *client) startCourier() {
	c.courier = c.streams.newCourier(c.key, c.home)
	c.line.forward(c.courier.push)
	c.courier.push(item{note: noteSynced, floor: c.line.floor(), jobs: slices.Clone(c.recent)})
}

func (c *client) stopCourier() {
	if c.courier == nil {
		return
	}
	c.courier.cancel()
	c.courier = nil
	c.line.recall()
}

// sendAgain sends all that is kept anew, if the session is still the one in
// which something was lost.
func (c *client) sendAgain(session uint64) {
	if c.courier == nil || c.courier.session != session {
		return
	}
	c.stopCourier()
	c.startCourier()
}

// acknowledge drops runs that the client has received at its home.
func (c *client) acknowledge(ids []uint64) {
	for _, id := range ids {
		c.line.drop(func(q *sequence) bool { return q.over && q.foreign == nil && q.id == id })
	}
}

// answered notes that a hub has handed over all that it has.
func (c *client) answered(hub string, home int64) {
	if c.answers == nil {
		c.answers = map[string]int64{}
	}
	c.answers[hub] = home
	c.tellNews()
}

func (c *client) tellNews() {
	close(c.news())
	c.newsChan = nil
}

// news is closed when a hub has answered, or a claim was.
func (c *client) news() chan struct{} {
	if c.newsChan == nil {
		c.newsChan = make(chan struct{})
	}
	return c.newsChan
}

// arrive makes w the newest socket of its client, and connects it once the
// client's home is here and the others have handed over what they have.
func (s *Streams) arrive(ctx context.Context, w *socket, k Key, live bool) {
	if s.carrier == nil {
		s.change(k, true, func(c *client) { c.attach(w, live) })
		return
	}
	s.change(k, true, func(c *client) {
		c.latest = max(c.latest, w.arrival)
		c.opening++
	})
	home, err := s.claim(ctx, k)
	if err != nil {
		s.o.Logger.Debug("cannot tell other hubs of a client's socket", "error", err)
	}
	s.change(k, false, func(c *client) {
		c.opening--
		if ctx.Err() != nil {
			return // it is gone already
		}
		if c.latest != w.arrival || err == nil && c.home != home {
			w.mute() // a newer one was quicker, here or elsewhere
			return
		}
		c.attach(w, live)
	})
}

// claim makes this hub the home of a client and waits for the others, though
// not for long.
func (s *Streams) claim(ctx context.Context, k Key) (Home, error) {
	wanted := Held{Client: k}
	s.change(k, true, func(c *client) {
		c.claiming++
		wanted.Number, wanted.Entry = c.home.Number, c.entry
	})
	ask, cancel := context.WithTimeout(ctx, carrierTimeout)
	defer cancel()
	claim, err := s.carrier.Claim(ask, wanted)
	s.change(k, true, func(c *client) {
		c.claiming = max(c.claiming-1, 0) // it may have been forgotten meanwhile
		if err == nil {
			c.move(claim.Home)
		}
		if claim.Moved {
			c.awaited = claim.Others
		}
		c.tellNews()
	})
	if err != nil {
		return Home{}, err
	}
	s.await(ctx, k, claim.Home)
	if claim.Moved {
		s.o.Arrived(ctx, k)
	}
	return claim.Home, nil
}

// await waits until the hubs that have heard of the home have handed over what
// they have; for a second socket, too, that comes meanwhile.
func (s *Streams) await(ctx context.Context, k Key, home Home) {
	late := time.NewTimer(handoverTimeout)
	defer late.Stop()
	over := false
	for {
		var news chan struct{}
		s.change(k, false, func(c *client) {
			if c.home != home {
				return // the client is elsewhere by now
			}
			if over || c.handedOver(home) {
				c.awaited = 0
			}
			if c.awaited > 0 || c.claiming > 0 && !over {
				news = c.news()
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

// handedOver reports whether all have answered that were expected to.
func (c *client) handedOver(home Home) bool {
	n := 0
	for _, number := range c.answers {
		if number >= home.Number {
			n++
		}
	}
	return n >= c.awaited
}

// seek finds out where a client is that has something to be told, unless that
// is known. It is kept meanwhile.
func (c *client) seek() {
	s := c.streams
	if s.carrier == nil || c.seeking || c.home.Hub != "" || c.socket != nil {
		return
	}
	c.seeking = true
	s.spawn(func() {
		ctx, cancel := context.WithTimeout(s.ctx, carrierTimeout)
		defer cancel()
		homes, err := s.carrier.Homes(ctx, []Key{c.key})
		c.change(func(c *client) {
			c.seeking = false
			if err == nil && homes[0].Hub != s.self {
				c.move(homes[0])
			}
		})
	})
}

// release gives up the home of a client of whom nothing is known any more.
func (c *client) release() {
	if c.courier != nil {
		c.courier.finish()
	}
	if !c.here() {
		return
	}
	s, held := c.streams, Held{Client: c.key, Number: c.home.Number, Entry: c.entry}
	s.spawn(func() {
		ctx, cancel := context.WithTimeout(s.ctx, carrierTimeout)
		defer cancel()
		if err := s.carrier.Release(ctx, held); err != nil {
			s.o.Logger.Debug("cannot give up the home of a client", "error", err)
		}
	})
}

// receipts tells the hubs of runs that the client has received them whole.
func (s *Streams) receipts(k Key, home int64, received map[string][]uint64) {
	for hub, ids := range received {
		s.mail(hub, letter{kind: letterReceipt, k: k, home: home, ids: ids})
	}
}

// tellHomes passes on what clients have fetched here to the hubs that have
// their sockets.
func (s *Streams) tellHomes(clients []Key, prompts []string) {
	if s.carrier == nil || len(clients) == 0 {
		return
	}
	s.spawn(func() {
		ctx, cancel := context.WithTimeout(s.ctx, carrierTimeout)
		defer cancel()
		homes, err := s.carrier.Homes(ctx, clients)
		if err != nil {
			s.o.Logger.Debug("cannot find the hub that has a client's socket", "error", err)
			return
		}
		for i, home := range homes {
			if home.Hub == "" || home.Hub == s.self {
				continue
			}
			s.mail(home.Hub, letter{
				kind: letterFetched, k: clients[i], home: home.Number,
				events: []event{{kind: eventSynced, jobs: prompts}},
			})
		}
	})
}

// Knows reports whether the client has a socket, here or at another hub, or had
// one of late.
func (s *Streams) Knows(ctx context.Context, k Key) (known bool) {
	s.change(k, false, func(*client) { known = true })
	if known || s.carrier == nil || k.Client == "" {
		return known
	}
	ctx, cancel := context.WithTimeout(ctx, carrierTimeout)
	defer cancel()
	homes, err := s.carrier.Homes(ctx, []Key{k})
	return err == nil && homes[0].Hub != ""
}

// Pass sends a message that belongs to no run to the client's socket, at
// whichever hub it is. It is never held, and dropped when there is no socket.
func (s *Streams) Pass(ctx context.Context, k Key, m Message) {
	here := s.carrier == nil
	s.change(k, false, func(c *client) { here = here || c.socket != nil || c.here() })
	if here {
		s.Broadcast(k, m)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, carrierTimeout)
	defer cancel()
	homes, err := s.carrier.Homes(ctx, []Key{k})
	if err != nil || homes[0].Hub == "" || len(m.Data) > depositBytes {
		return
	}
	s.mail(homes[0].Hub, letter{
		kind: letterMessage, k: k, home: homes[0].Number, events: []event{{kind: eventFrame, message: m}},
	})
}

// mail sends a letter once; what is lost is asked for again.
func (s *Streams) mail(hub string, l letter) {
	l.from = s.self
	ctx, cancel := context.WithTimeout(s.ctx, carrierTimeout)
	defer cancel()
	if err := s.carrier.Mail(ctx, hub, l.appendTo(nil)); err != nil {
		s.o.Logger.Debug("cannot write to another hub", "hub", hub, "error", err)
	}
}
