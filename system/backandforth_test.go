package system_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/system"
)

// A hub hangs, another one takes over its run and stops just when the first goes on, which
// takes the run back before it knows that it ever lost it. Meanwhile the other hub had the
// messages. The end is told soon all the same.
func TestRunComesBackToItsFormerHub(t *testing.T) {
	t.Parallel()
	// When its leases are renewed next, and whether it learns it from that, depends on when it hung.
	for after := range 5 {
		t.Run(fmt.Sprint(after, " s"), func(t *testing.T) {
			inWorld(t, system.Config{Hubs: 2, Comfys: 1}, func(w *system.World, ledger *system.Ledger) {
				w.Hubs[1].Kill()
				told := asks(w, ledger, "ann", 20)
				w.Until(time.Minute, "a server runs it", func() bool { return running(w) != nil })
				w.Hubs[1].Start()
				w.Until(time.Minute, "the other hub can use the server", w.Hubs[1].Whole)
				<-time.After(time.Duration(after) * time.Second)
				w.Net.Freeze("hub1")
				<-time.After(5 * time.Second)
				w.Net.Thaw("hub1")
				w.Hubs[1].Stop()
				began := time.Now()
				<-told
				require.Less(t, time.Since(began), time.Minute)
			})
		})
	}
}
