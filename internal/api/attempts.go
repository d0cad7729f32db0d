package api

import (
	"math"
	"time"

	"github.com/comfyhub/comfyhub/internal/tenantlru"
)

const (
	// freeAttempts is how often a network may show something wrong before it is told to wait.
	freeAttempts = 10
	// attemptEvery is how long each further attempt takes to be forgiven.
	attemptEvery = 6 * time.Second
)

// Attempts count wrong keys and tokens of all kinds by network. The zero value is ready to
// use; what it remembers is bounded.
type Attempts struct{ seen tenantlru.Map[debt] }

// debt is how much of its attempts a network has used.
type debt struct {
	used  float64
	since time.Time
}

// Failed counts something wrong that came from an address, and returns for how many seconds
// its network is to wait; 0 if it need not.
func (a *Attempts) Failed(ip string) (wait int) {
	a.seen.Change("", networkOf(ip), func(d *debt) {
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
