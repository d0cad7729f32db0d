package hub

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

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
