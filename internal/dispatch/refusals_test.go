package dispatch

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRefusalsAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var s refusals
		for n := range 3 * maxRefused {
			s.note(fmt.Sprint(n), time.Hour, false)
			require.True(t, s.has(fmt.Sprint(n)))
			require.LessOrEqual(t, len(s.jobs), maxRefused)
		}
	})
}

// A refusal ends by itself, after a longer time each time.
func TestRefusalsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s refusals
		for n, seconds := range []int{5, 10, 20, 40, 80, 160, 300, 300} {
			rest := time.Duration(seconds) * time.Second
			got, before := s.note("a", firstRest, n == 1)
			require.Equal(t, rest, got)
			require.Equal(t, n, before)
			time.Sleep(rest - time.Millisecond)
			require.True(t, s.has("a"))
			time.Sleep(time.Millisecond)
			require.False(t, s.has("a"))
			require.Equal(t, n >= 1, s.itself("a"), "it would say the same again")
		}
		s.forget()
		require.False(t, s.itself("a"))
		got, before := s.note("a", firstRest, false)
		require.Equal(t, firstRest, got)
		require.Zero(t, before)
	})
}

// Excused jobs come back later each time, but sooner when only the instance was to
// blame.
func TestPausesOfExcusedJobs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		here, anywhere := result{kind: excused}, result{kind: excused, anywhere: true}
		for before, ms := range []int64{0, 500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000} {
			require.Equal(t, ms, anywhere.pause(before).Milliseconds(), before)
			require.Equal(t, ms, here.pause(before+freeExcuses-1).Milliseconds(), before)
		}
		require.Zero(t, here.pause(0))
		require.Equal(t, longestPause, anywhere.pause(1<<40))
		require.Zero(t, result{kind: lost, anywhere: true}.pause(9))
	})
}
