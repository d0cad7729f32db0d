package refusal_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/refusal"
)

// Retry-After says when a limit ends, in whole seconds, and the text says the same.
func TestWhenALimitEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		refusal *refusal.Refusal
		after   int
		text    string
	}{
		{refusal.Rate(1500 * time.Millisecond), 2, "in 2s."},
		{refusal.Rate(time.Millisecond), 1, "in 1s."},
		{refusal.Rate(0), 1, "in 1s."},
		{refusal.TimeSpent(time.Hour), 3600, "in 1h0m."},
		{refusal.TimeSpent(time.Second), 1, "in 1m."},
		{refusal.TenantStorage(), 3600, "within an hour."},
	} {
		require.Equal(t, c.after, c.refusal.RetryAfter, c.refusal.Kind)
		require.Contains(t, c.refusal.Details, c.text)
	}
}

// Another dialect's words change no refusal that others hold, and no other error.
func TestOtherWords(t *testing.T) {
	t.Parallel()
	whole := refusal.Fetching()
	whole.Cause = errors.New("why")
	require.ErrorContains(t, refusal.OfJobs(whole), "why")
	require.NotEqual(t, whole, refusal.OfJobs(whole))
	require.Equal(t, refusal.Fetching().Message, whole.Message)
	require.Equal(t, whole.Cause, refusal.OfRequests(whole.Cause))
}
