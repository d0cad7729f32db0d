package run

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Excused jobs come back later each time, but sooner when only the instance was to
// blame.
func TestPausesOfExcusedJobs(t *testing.T) {
	t.Parallel()
	here, anywhere := result{kind: excused}, result{kind: excused, anywhere: true}
	for before, ms := range []int64{0, 500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000} {
		require.Equal(t, ms, anywhere.pause(before).Milliseconds(), before)
		require.Equal(t, ms, here.pause(before+freeExcuses-1).Milliseconds(), before)
	}
	require.Zero(t, here.pause(0))
	require.Equal(t, longestPause, anywhere.pause(1<<40))
	require.Zero(t, result{kind: lost, anywhere: true}.pause(9))
}
