package overflow

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// What is known about runs at an endpoint that nobody has any more does not stay for ever, and neither
// does the money that was set aside for them.
func TestRunsOfForgottenEndpoints(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		b := NewBook(db)
		for job, days := range map[string]int{"old": 9, "old, still waiting": 9, "young": 7} {
			to := record{Endpoint: "gone", Run: job, Phase: begun, Tenant: "ann", Aside: 1000, At: b.store.now() - int64(days)*(24*time.Hour).Milliseconds()}
			must.Get(b.move(t.Context(), change{job: job, to: &to}))(t)
		}
		another := NewBook(db)
		require.NoError(t, another.Refresh(t.Context()))
		for range 2 {
			require.NoError(t, another.Forget(t.Context(), func(job string) bool { return job != "old, still waiting" }))
		}
		left := must.Get(b.store.all(t.Context()))(t)
		require.Len(t, left, 2)
		require.NotContains(t, left, "old")
		require.Equal(t, money{spent: 0.001, aside: 0.002}, must.Get(b.store.purse(t.Context(), "gone"))(t))
	})
}
