package stream

import (
	"errors"
	"time"
)

// cutOffAfter is how long this hub may be out of reach of the others before it sends its clients to
// them.
const cutOffAfter = 30 * time.Second

// ErrCutOff is returned by [Sockets.Serve] while other hubs serve clients better than this one, which
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
