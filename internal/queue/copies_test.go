package queue

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A job may be claimed before the call that has accepted it keeps its copy. The copy
// of the claim stays: put back from the other one, the job would run twice.
func TestCopyOfAClaimIsNotReplaced(t *testing.T) {
	t.Parallel()
	c := newCopies()
	c.change("key", record{"state": "leased", "fence": "1"}, func(j *copied) { j.held = true })
	c.change("key", record{"state": "queued", "fence": "0"}, func(j *copied) { j.stored = []byte("body") })
	kept, ok := c.get("key")
	require.True(t, ok)
	require.Equal(t, record{"state": "leased", "fence": "1"}, kept.record)
	require.True(t, kept.held)
	require.Equal(t, "body", string(kept.stored), "what only the other call knows is kept")
	c.change("key", record{"state": "queued", "fence": "2"}, func(j *copied) { j.held = false })
	kept, _ = c.get("key")
	require.Equal(t, "queued", kept.record["state"], "a run that was given back")
}
