package stream

import (
	"sync"
	"time"
)

// This file handles sockets that the other hubs could not be told about when they opened.

// maxDeciding is how many clients are claimed at the same time: each claim waits for other hubs,
// and after an outage there may be many.
const maxDeciding = 64

// undecided reports whether the client has a socket here but this hub could not become its owner
// yet. Another hub that claims to be the owner may have had a socket of the client before or after
// this one, so nothing follows from that.
func (c *client) undecided() bool { return c.socket != nil && !c.ownedHere() }

// decide claims the clients that are undecided. The hub with the newest socket then becomes the
// owner.
func (s *Streams) decide() {
	var all sync.WaitGroup
	slots := make(chan struct{}, maxDeciding)
	for _, c := range s.all() {
		var opened time.Time
		undecided := false
		c.change(func(c *client) {
			if undecided = c.undecided() && c.claiming == 0; undecided {
				opened = c.socket.opened
			}
		})
		if !undecided {
			continue
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			_, _ = s.claim(s.ctx, c.key, opened) // if it fails, the next heartbeat tries again
		})
	}
	all.Wait()
}
