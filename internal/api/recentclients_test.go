package api

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClientsOfAPlace(t *testing.T) {
	t.Parallel()
	var a clientsByPlace
	for n := range maxPerPlace + 1 {
		a.note("ada", "here", fmt.Sprint(n))
	}
	require.Len(t, a.of("ada", "here"), maxPerPlace)
	require.Equal(t, fmt.Sprint(maxPerPlace), a.of("ada", "here")[0], "the latest first")
	require.Empty(t, a.of("bob", "here"), "another tenant's")
	a.drop("ada", "here", fmt.Sprint(maxPerPlace))
	require.Len(t, a.of("ada", "here"), maxPerPlace-1)
}
