package dispatch

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestOneAtATimeForEachOwner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l lanes
		leave := must(l.enter(t.Context(), "slow"))
		inside := make(chan func(), 2)
		for range 2 {
			go func() {
				leave, err := l.enter(t.Context(), "slow")
				if err == nil {
					inside <- leave
				}
			}()
		}
		synctest.Wait()
		require.Empty(t, inside, "one after the other")
		other, err := l.enter(t.Context(), "other")
		require.NoError(t, err, "nobody else waits")
		other()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = l.enter(gone, "slow")
		require.ErrorIs(t, err, context.Canceled)

		leave()
		synctest.Wait()
		require.Len(t, inside, 1)
		(<-inside)()
		(<-inside)()
		require.Empty(t, l.open, "what nobody uses is forgotten")
	})
}
