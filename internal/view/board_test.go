package view

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// However long a look at the queue takes, the dashboard takes a twentieth of the time for it, and shows
// something new every few seconds.
func TestQueuePause(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]time.Duration{
		0: time.Second, 50 * time.Millisecond: time.Second, 100 * time.Millisecond: 2 * time.Second, time.Second: 5 * time.Second,
	} {
		require.Equal(t, want, queuePause(took), took)
	}
}
