package stream

import "sync"

// This file handles sockets that the other hubs could not be told about when they opened.

// maxDeciding is how many clients are claimed at the same time: each claim waits for other hubs,
// and after an outage there may be many.
const maxDeciding = 64

// undecided reports whether the client has a socket here with which this hub could not become its
// owner yet. It may have been the owner with an earlier socket, and still be so as far as it knows.
// Another hub that claims to be the owner may have had a socket of the client before or after this
// one, so nothing follows from that.
func (c *client) undecided() bool {
	return c.socket != nil && !(c.socket.claimed && c.ownedHere())
}

// decide claims the clients that are undecided. The hub with the newest socket then becomes the
// owner.
func (s *Streams) decide() {
	var all sync.WaitGroup
	slots := make(chan struct{}, maxDeciding)
	for _, c := range s.all() {
		var w *socket
		c.change(func(c *client) {
			if c.undecided() && c.claiming == 0 {
				w = c.socket
			}
		})
		if w == nil {
			continue
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			_, _ = s.claim(s.ctx, c.key, w) // if it fails, the next heartbeat tries again
		})
	}
	all.Wait()
}
