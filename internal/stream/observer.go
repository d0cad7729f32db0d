package stream

import "time"

// Observer takes measurements. Every message calls it, so its methods must be quick.
type Observer interface {
	// Sent is told that a message of that many bytes was written to a client.
	Sent(bytes int)
	// Lagged is told how long a message of a run waited for its socket: from the moment when the
	// client may have it until it was written.
	Lagged(lag time.Duration)
}

// unobserved is the Observer of streams that have none.
type unobserved struct{}

func (unobserved) Sent(int)             {}
func (unobserved) Lagged(time.Duration) {}
