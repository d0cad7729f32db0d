package dispatch

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHomesOfOthersAreKept(t *testing.T) {
	t.Parallel()
	var h homes
	h.note("ann", "client", "gpu")
	for n := range 2 * maxHomes {
		h.note("bob", fmt.Sprint(n), "gpu")
		require.LessOrEqual(t, len(h.tenants["bob"]), maxHomes)
	}
	require.Equal(t, "gpu", h.of("ann", "client"))
	require.Equal(t, "gpu", h.of("bob", fmt.Sprint(2*maxHomes-1)))
	require.Empty(t, h.of("ann", "other"))
}

func TestRefusalsAreBounded(t *testing.T) {
	t.Parallel()
	l := &link{refused: map[string]bool{}}
	for n := range 3 * maxRefused {
		l.refuse(fmt.Sprint(n))
		require.True(t, l.refuses(fmt.Sprint(n)))
		require.LessOrEqual(t, len(l.refused), maxRefused)
	}
}
