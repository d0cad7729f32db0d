package hub

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
)

// A tenant that posts too fast is told so, in every dialect and with the moment when it may
// go on; others are not.
func TestTenantRate(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := shared(t, TenantLimits{Rate: 2}, func(b *bench) {
			b.settings.TenantLimitsOf = map[string]TenantLimits{"bob": {Rate: 1000}}
			b.instances = append(b.instances, newInstance(t, sim.Config{}))
		})
		body := func(n int) string { return fmt.Sprintf(`{"prompt": %s}`, picture(n)) }
		for n := range 2 {
			status, answer := b.as("ann", "POST", "/prompt", body(n))
			require.Equal(t, http.StatusOK, status, answer)
		}
		status, answer := b.as("ann", "POST", "/prompt", body(3))
		require.Equal(t, http.StatusTooManyRequests, status)
		b.refused("rate", status, answer)
		require.Equal(t, "tenant_rate", kindOfError(t, answer))
		require.Regexp(t, `You can go on in (30|[12]?\d)s\.`, answer)

		status, answer = b.as("ann", "POST", "/hub/v1/submit", fmt.Sprintf(`{"workflow": %s}`, picture(4)))
		require.Equal(t, http.StatusTooManyRequests, status, answer)
		require.Contains(t, answer, "too many prompts a minute")
		for n := range 5 {
			status, answer = b.as("bob", "POST", "/prompt", body(n))
			require.Equal(t, http.StatusOK, status, answer)
		}
	})
}

// Retry-After says when a limit ends, in whole seconds.
func TestReachedLimit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, tc := range []struct {
			err   error
			limit string
			after int
		}{
			{RateError{Wait: 1500 * time.Millisecond}, "rate", 2},
			{RateError{Wait: time.Millisecond}, "rate", 1},
			{TimeSpentError{Wait: time.Hour}, "gpu_seconds", 3600},
			{fmt.Errorf("more: %w", ErrTenantStorage), "storage", 3600},
			{ErrTenantWaiting, "waiting", 10},
			{ErrTenantQueueSize, "queue_size", 10},
		} {
			reached, ok := ReachedLimit(tc.err)
			require.True(t, ok)
			require.Equal(t, tc.limit, reached.Limit)
			require.Equal(t, tc.after, reached.RetryAfter, strconv.Quote(tc.limit))
		}
		_, ok := ReachedLimit(ErrQueueFull)
		require.False(t, ok, "the hub's own limit")
	})
}

// A tenant whose files take too much is refused until some are gone.
func TestTenantStorage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := shared(t, TenantLimits{Storage: 10_000}, func(b *bench) {
			b.instances = append(b.instances, newInstance(t, sim.Config{}))
		})
		post := func(tenant string) (int, string) {
			return b.as(tenant, "POST", "/prompt", fmt.Sprintf(`{"prompt": %s}`, picture(7)))
		}
		status, answer := post("ann")
		require.Equal(t, http.StatusOK, status, answer)
		fetched, err := b.hub.store.Taken(t.Context(), "nobody")
		require.NoError(t, err)
		require.Zero(t, fetched)
		eventually(t, func() bool {
			taken, err := b.hub.store.Taken(t.Context(), "ann")
			return err == nil && taken > 0
		}, time.Minute, 5*time.Millisecond, "the picture counts")

		_, err = b.hub.db.Client().ZIncrBy(t.Context(), b.hub.db.Key("files", "shares"), 10_000, "ann").Result()
		require.NoError(t, err)
		status, answer = post("ann")
		require.Equal(t, http.StatusTooManyRequests, status, answer)
		b.refused("storage", status, answer)
		status, answer = post("bob")
		require.Equal(t, http.StatusOK, status, answer)
	})
}
