package system_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/system"
)

// Hubs keep nothing of guests who post one prompt, listen to its end and never come back.
func TestHubsForgetTheirGuests(t *testing.T) {
	inWorld(t, system.Config{Hubs: 2, Comfys: 4}, func(w *system.World, ledger *system.Ledger) {
		const guests, atOnce = 120, 8
		var all sync.WaitGroup
		for first := range atOnce {
			all.Go(func() {
				for n := first; n < guests; n += atOnce {
					<-asks(w, ledger, fmt.Sprint("guest", n), 1)
				}
			})
		}
		all.Wait()
		require.Empty(t, ledger.Breaches())
		w.CheckQuiet(ledger)
		require.Empty(t, ledger.Breaches())
	})
}
