package stream

import (
	"context"
	"slices"
	"time"
)

const (
	// heartbeatInterval is how often a hub reports that it is alive and checks whether what it
	// knows about the others is still true.
	heartbeatInterval = 5 * time.Second
	// renewEvery is the number of heartbeats between renewals of ownership.
	renewEvery = 4
	// peerQueue is how many messages are queued while one is handled.
	peerQueue = 64
)

// watch listens to the other hubs, and makes sure that what this hub knows about them is true
// although notices get lost.
type watch struct {
	clients   *registry
	network   *network
	ownership *ownership
	inbox     *inbox
	near      Neighbours
	sendAway  func(away bool)
	cutOff    time.Time // since when no heartbeat has reached the others
}

// start connects the streams with those of other hubs.
func (w *watch) start() {
	n := w.network
	messages := make(chan []byte, peerQueue)
	n.spawn(func() {
		defer close(messages)
		for notice := range n.transport.Listen(n.ctx) {
			w.hear(notice, messages)
		}
	})
	n.spawn(func() {
		for text := range messages {
			w.inbox.read(text)
		}
	})
	n.spawn(func() {
		tick := time.NewTicker(heartbeatInterval)
		defer tick.Stop()
		for beat := 0; ; beat++ {
			w.heartbeat(beat%renewEvery == 0)
			select {
			case <-n.ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
}

// hear handles a notice from another hub.
func (w *watch) hear(n Notice, messages chan<- []byte) {
	switch n.Kind {
	case Messaged:
		select {
		case messages <- n.Message:
		case <-w.network.ctx.Done():
		}
	case Claimed:
		if n.Owner.Hub != w.network.self {
			w.ownership.claimed(n.Client, n.Owner)
		}
	case Released:
		w.clients.change(n.Client, false, func(c *client) {
			if c.owner == n.Owner && !c.ownedHere() {
				c.move(Owner{Number: n.Owner.Number})
			}
		})
	case Left:
		w.ownership.hubDied(n.Hub)
	case Resync:
		w.resync()
	}
}

// resync checks everything, because notices may have been missed.
func (w *watch) resync() {
	if w.network.ctx.Err() != nil {
		return
	}
	w.ownership.renew()
	w.ownership.check()
	w.inbox.askAll(func(*source) bool { return true })
	w.ownership.decide()
}

// heartbeat reports that this hub is alive, and repairs what lost messages have
// left undone.
func (w *watch) heartbeat(renew bool) {
	ctx, cancel := context.WithTimeout(w.network.ctx, transportTimeout)
	defer cancel()
	err := w.network.transport.Heartbeat(ctx)
	if w.network.ctx.Err() != nil {
		return // closed meanwhile, which says nothing about the others
	}
	if w.reached(err == nil); err != nil {
		return
	}
	if renew {
		w.ownership.renew()
	}
	w.ownership.check()
	w.inquire()
	w.inbox.askAll((*source).silent)
	for _, c := range w.clients.all() {
		c.change(func(c *client) {
			if c.forwarder != nil {
				c.forwarder.push(item{control: controlHeartbeat, floor: c.line.lists.floor()})
			}
		})
	}
	w.ownership.decide()
}

// inquire detects hubs that died without leaving.
func (w *watch) inquire() {
	var hubs []string
	for _, c := range w.clients.all() {
		c.change(func(c *client) {
			for hub, src := range c.remotes.sources {
				if !src.broken && !slices.Contains(hubs, hub) {
					hubs = append(hubs, hub)
				}
			}
		})
	}
	if len(hubs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(w.network.ctx, transportTimeout)
	defer cancel()
	alive, err := w.network.transport.Alive(ctx, hubs)
	if err != nil {
		return
	}
	for i, hub := range hubs {
		if !alive[i] {
			w.ownership.hubDied(hub)
		}
	}
}

// reached notes whether a heartbeat has. A hub that alone is cut off closes its sockets and takes no
// others: what other hubs have for these clients cannot come here, and they are told of it elsewhere.
// If nobody reaches anybody, they are better off waiting.
func (w *watch) reached(ok bool) {
	if w.near == nil {
		return
	}
	w.near.Reached(ok)
	switch {
	case ok:
		w.cutOff = time.Time{}
	case w.cutOff.IsZero():
		w.cutOff = time.Now()
	}
	w.sendAway(!ok && time.Since(w.cutOff) >= cutOffAfter && w.near.Reach())
}
