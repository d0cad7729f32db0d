package view

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

// body is a stored body with a long key, of which four fit.
func body(tenant string, n int) StoredBody {
	key := fmt.Sprintf("%s %d ", tenant, n)
	return StoredBody{Key: key + strings.Repeat("x", maxCachedBodies/4-len(key))}
}

func TestBodyCacheIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c bodyCache
		kept := func(tenant string, n int) bool {
			has, missing := c.get(tenant, []string{body(tenant, n).Key})
			require.Equal(t, 1, len(has)+len(missing))
			return len(has) == 1
		}
		for n := range 6 {
			c.put("a", body("a", n))
		}
		require.True(t, kept("a", 0), "what the next listing begins with stays")
		require.True(t, kept("a", 3))
		require.False(t, kept("a", 4), "four fit")
		require.LessOrEqual(t, c.size, int64(maxCachedBodies))

		time.Sleep(time.Second)
		c.put("b", body("b", 0))
		require.False(t, kept("a", 0), "another tenant's make way")
		require.True(t, kept("b", 0))

		c.put("b", body("b", 1))
		c.retain("b", []job.Job{{Key: body("b", 1).Key}})
		require.False(t, kept("b", 0), "it has ended")
		require.True(t, kept("b", 1))
		require.Equal(t, body("b", 1).Held(), c.size)

		time.Sleep(bodiesKeptFor + time.Second)
		c.retain("c", nil)
		require.Zero(t, c.size, "nobody has listed b's for a minute")
		require.Empty(t, c.tenants)
	})
}
