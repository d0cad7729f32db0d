package view

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

// What a reader was given does not change when the view looks again.
func TestChangeIsACopy(t *testing.T) {
	t.Parallel()
	v := &boardView{}
	v.seen.counts.Waiting = 1
	c := v.everything()
	v.seen.counts.Waiting = 2
	require.Equal(t, int64(1), int64(c.Counts.Waiting))
}

// A job that changes while it is read is read again, as what was read may be what it was before.
func TestTouchWhileItIsRead(t *testing.T) {
	t.Parallel()
	var jobs boardJobs
	reads, touch := 0, true
	get := func(_ context.Context, keys []string) ([]job.Job, error) {
		reads++
		if touch {
			jobs.touch("a")
		}
		return []job.Job{{Key: keys[0]}}, nil
	}
	for i, again := range []bool{true, true, false} {
		before := reads
		known, err := jobs.read(t.Context(), get, []string{"a"})
		require.NoError(t, err)
		require.Contains(t, known, "a")
		require.Equal(t, again, reads > before, i)
		touch = false
	}
	jobs.forget()
	require.Empty(t, jobs.of([]string{"a"}, jobs.known["a"].at))
}
