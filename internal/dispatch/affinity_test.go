package dispatch

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHomesOfOthersAreKept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var h affinity
		h.note("ann", "client", "gpu")
		for n := range 2 * maxAffinity {
			h.note("bob", fmt.Sprint(n), "gpu")
			require.LessOrEqual(t, len(h.tenants["bob"]), maxAffinity)
		}
		require.Equal(t, "gpu", h.of("ann", "client"))
		require.Equal(t, "gpu", h.of("bob", fmt.Sprint(2*maxAffinity-1)))
		require.Empty(t, h.of("ann", "other"))
	})
}
