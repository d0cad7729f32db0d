package system

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// Load is what clients do in a run.
type Load struct {
	// Sockets and Pollers are how many clients listen, and how many poll the history.
	Sockets, Pollers int
	// For is how long they post, and faults begin.
	For time.Duration
}

// clientName is the host of a client, which are counted from 0.
func clientName(n int) string { return fmt.Sprint("client", n+1) }

// settleWithin is how long everything may take to end once all faults have healed.
const settleWithin = 10 * time.Minute

// Run runs clients on a world while faults happen, and returns what was promised. The seed
// decides by how much Redis's clock differs from all others. It must be called in a bubble.
func Run(t testing.TB, seed uint64, c Config, load Load, faults []Fault) (*Ledger, *Trace) {
	r := rand.New(rand.NewPCG(seed, 2)) // #nosec G404 -- repeatable, not secret
	c.RedisAhead = time.Duration(r.IntN(241)-120) * time.Second
	w := New(t, c)
	defer w.Close()
	ledger := &Ledger{}
	until := time.Now().Add(load.For)
	var clients sync.WaitGroup
	var names []string
	for n := range load.Sockets + load.Pollers {
		names = append(names, clientName(n))
		client := w.Client(names[n], seed<<8|uint64(n), n < load.Sockets, ledger) // #nosec G115 -- small
		clients.Go(func() { client.run(until) })
	}
	quiet := make(chan struct{})
	var observer sync.WaitGroup
	observer.Go(func() { w.observe(seed, names, ledger, quiet) })
	defer observer.Wait()
	defer close(quiet)
	w.inject(faults)
	done := make(chan struct{})
	go func() {
		defer close(done)
		clients.Wait()
	}()
	select {
	case <-done:
		close(w.allEnded)
		w.CheckQuiet(ledger)
	case <-time.After(time.Until(until) + settleWithin):
		for _, p := range ledger.untold() {
			ledger.breach(p.ID, "%v after all faults nobody has told %s of its end", settleWithin, p.Client)
		}
		w.end()
		<-done
	}
	return ledger, w.Trace
}
