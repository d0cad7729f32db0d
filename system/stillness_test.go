package system

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// Several may want to look while nobody else runs: each gets its turn.
func TestStillness(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		still := newStillness()
		var looking sync.WaitGroup
		looks := 0
		for range 100 {
			looking.Go(func() { still.look(func() { looks++ }) })
		}
		looking.Wait()
		require.Equal(t, 100, looks)
	})
}
