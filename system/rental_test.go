package system_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/system"
)

// Machines come when there is work, run it, and go.
func TestMachinesComeAndGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		load := system.Load{Sockets: 8, For: 4 * time.Minute}
		c := system.Config{Hubs: 2, Comfys: 1, Clients: load.Sockets, Seconds: []float64{2, 20, 40}, Rental: &system.RentalConfig{Seed: 1}}
		ledger, trace := system.Run(t, 1, c, load, nil)
		require.Empty(t, ledger.Breaches(), trace.Of("rental"))
		require.Regexp(t, "gpu-[0-9]+ is up", trace.Of("rental"))
	})
}
