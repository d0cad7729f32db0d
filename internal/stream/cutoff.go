package stream

import (
	"errors"
	"time"

	"github.com/coder/websocket"
)

// cutOffAfter is how long this hub may be out of reach of the others before it sends its clients to
// them.
const cutOffAfter = 30 * time.Second

// ErrCutOff is returned by [Streams.Serve] while other hubs serve clients better than this one, which
// is cut off from them.
var ErrCutOff = errors.New("stream: cut off from the other hubs")

// Neighbours are the hubs that share the queue, as far as this one hears of them by other ways than
// the queue's.
type Neighbours interface {
	// Reached is told at each heartbeat whether this hub has reached the others by its [Transport].
	Reached(ok bool)
	// Reach reports whether another hub reaches the rest.
	Reach() bool
}

// reached notes whether a heartbeat has. A hub that alone is cut off closes its sockets and takes no
// others: what other hubs have for these clients cannot come here, and they are told of it elsewhere.
// If nobody reaches anybody, they are better off waiting.
func (s *Streams) reached(ok bool) {
	near := s.o.Neighbours
	if near == nil {
		return
	}
	near.Reached(ok)
	switch {
	case ok:
		s.cutOff = time.Time{}
	case s.cutOff.IsZero():
		s.cutOff = time.Now()
	}
	s.sendAway(!ok && time.Since(s.cutOff) >= cutOffAfter && near.Reach())
}

// sendAway closes all sockets and refuses new ones, or does so no more. The clients come back, to
// another hub if they, or something in front of the hubs, know several.
func (s *Streams) sendAway(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if away && !s.away {
		s.o.Logger.Warn("this hub alone is cut off from the queue: clients are sent to other hubs", "sockets", len(s.sockets))
	}
	if s.away = away; !away {
		return
	}
	for sock := range s.sockets {
		sock.shut(websocket.StatusServiceRestart, "")
	}
}
