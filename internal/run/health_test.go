package run

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

func TestHealth(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		var h streaks
		one := func(key string) job.Job { return job.Job{Key: key, Class: key} }
		wrong := func(key string, cause Cause) (bool, []verdict) {
			doubtful, _, said := h.wrong("bad", one(key), cause, false)
			return doubtful, said
		}
		for n := range 2 {
			doubtful, said := wrong(fmt.Sprint(n), Failed)
			require.False(t, doubtful)
			require.Empty(t, said)
			require.False(t, h.Doubts("bad"))
		}
		require.Empty(t, h.well("good", one("x")))
		doubtful, said := wrong("2", Died)
		require.True(t, doubtful, "another one does its work")
		require.Empty(t, said, "but nothing proves yet that these graphs can run")
		require.True(t, h.Rests("bad"))
		time.Sleep(firstProbe)
		require.False(t, h.Rests("bad"))
		evidence := "set aside: its last 3 runs came to nothing (2 × ended with an error; 1 × died in it); meanwhile others finished 2, 1 of them of the same jobs"
		require.Equal(t, []verdict{{"bad", evidence}}, h.well("good", one("2")))
		require.True(t, h.Rests("bad"))
		for rest, n := 2*firstProbe, 3; n < 20; n++ {
			wrong(fmt.Sprint(n), Refused)
			require.True(t, h.Rests("bad"))
			time.Sleep(min(rest, longestProbe))
			require.False(t, h.Rests("bad"))
			rest *= 2
		}
		require.Len(t, h.ill["bad"].last, maxMishaps)
		require.Equal(t, []verdict{{"bad", ""}}, h.well("bad", one("probe")))
		require.Empty(t, h.ill)

		// A job that also fails on a second instance clears the first, and graphs like it no longer
		// count until one ends well.
		wrong("g", Failed)
		require.True(t, h.agreed("good", one("g")))
		require.Empty(t, h.ill)
		wrong("g", Failed)
		require.Empty(t, h.ill)
		h.well("good", one("g"))
		wrong("g", Failed)
		require.Len(t, h.ill, 1)
		require.False(t, h.agreed("bad", one("g")), "the same one")
		for n := range 3 * maxIll {
			h.wrong(fmt.Sprint(n), one("j"), Died, false)
			require.LessOrEqual(t, len(h.ill), maxIll)
		}
	})
}
