package classes

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Nobody takes the places of those who wait from all others.
func TestWaiters(t *testing.T) {
	t.Parallel()
	c := waiters{of: map[string]int{}}
	for n := range 2 * MaxStartingOne {
		require.Equal(t, n < MaxStartingOne, c.enter("greedy"))
	}
	others := 0
	for n := range 2 * maxStarting {
		if c.enter(strconv.Itoa(n)) {
			others++
		}
	}
	require.Equal(t, maxStarting-MaxStartingOne, others)
	c.leave("greedy")
	require.True(t, c.enter("late"))
	c.leave("late")
	for range MaxStartingOne - 1 {
		c.leave("greedy")
	}
	require.NotContains(t, c.of, "greedy")
	require.NotContains(t, c.of, "late")
}
