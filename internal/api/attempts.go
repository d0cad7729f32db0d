package api

import (
	"math"
	"time"

	"github.com/comfyhub/comfyhub/internal/recent"
)

const (
	// freeAttempts is how often a network may show a wrong key before it is told to wait.
	freeAttempts = 10
	// attemptEvery is how long each further attempt takes to be forgiven.
	attemptEvery = 6 * time.Second
)

// attempts count wrong keys by network. The zero value is ready to use; what it remembers
// is bounded.
type attempts struct{ seen recent.Map[debt] }

// debt is how much of its attempts a network has used.
type debt struct {
	used  float64
	since time.Time
}

// failed counts a wrong key, and returns for how many seconds the network is to wait; 0 if
// it need not.
func (a *attempts) failed(network string) (wait int) {
	a.seen.Change("", network, func(d *debt) {
		now := time.Now()
		d.used = math.Max(0, d.used-now.Sub(d.since).Seconds()/attemptEvery.Seconds())
		d.since = now
		if d.used+1 > freeAttempts {
			wait = int(math.Ceil((d.used + 1 - freeAttempts) * attemptEvery.Seconds()))
			return // what is refused does not make it worse
		}
		d.used++
	})
	return wait
}
