package demand

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/keyring/keyringtest"
	"github.com/comfyhub/comfyhub/internal/machines"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// The names of machines that come and go do not pile up: each is released once its machine is gone.
func TestNamesOfMachinesThatEnd(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		db := redistest.Embedded(t)
		ring := keyringtest.Open(t, keyringtest.NewStore())
		owned := map[string]bool{}
		alive := map[string]bool{}
		tokens := &Tokens{Machines: machines.New(db, ring), Sealer: ring.Sealer(keyring.Tokens), Forget: func(_ context.Context, name string) (bool, error) {
			if alive[name] {
				return false, nil
			}
			delete(owned, name)
			return true, nil
		}}
		for _, name := range []string{"gpu-a", "gpu-b", "gpu-c"} {
			must.Get(tokens.Make(t.Context(), []string{name}, time.Hour))(t)
			owned[name] = true
		}
		known := func() []string { return slices.Sorted(maps.Keys(owned)) }
		require.NoError(t, tokens.End(t.Context(), "gpu-a"))
		require.NoError(t, tokens.End(t.Context(), "gpu-b"))
		require.NoError(t, tokens.Tidy(t.Context()))
		require.Equal(t, []string{"gpu-a", "gpu-b", "gpu-c"}, known(), "they may still report, and would get their names again")
		alive["gpu-b"] = true
		time.Sleep(goneAfter)
		require.NoError(t, tokens.Tidy(t.Context()))
		require.Equal(t, []string{"gpu-b", "gpu-c"}, known())
		alive["gpu-b"] = false
		require.NoError(t, tokens.Tidy(t.Context()))
		require.Equal(t, []string{"gpu-c"}, known())
		require.Empty(t, tokens.ended)
	})
}
