package hub

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	var m memory[int]
	set := func(tenant, key string, value int) { m.change(tenant, key, func(v *int) { *v = value }) }
	get := func(tenant, key string) (value int) {
		m.read(tenant, key, func(v *int) { value = *v })
		return value
	}
	set("quiet", "place", 1)
	for n := range maxRememberedPerTenant + 100 {
		set("loud", fmt.Sprint(n), 2)
	}
	require.Len(t, m.tenants["loud"].keys, maxRememberedPerTenant)
	require.Zero(t, get("loud", "99"), "the oldest are forgotten")
	require.Equal(t, 2, get("loud", "100"))
	for n := range maxRemembered {
		set(fmt.Sprint("crowd", n%3), fmt.Sprint(n), 3)
	}
	require.Equal(t, maxRemembered, m.size)
	require.Equal(t, 1, get("quiet", "place"), "not because others are loud")
	total := 0
	for _, own := range m.tenants {
		require.Len(t, own.keys, own.used.Len())
		total += len(own.keys)
	}
	require.Equal(t, m.size, total)
}

func TestAcquaintancesOfAPlace(t *testing.T) {
	t.Parallel()
	var a acquaintances
	for n := range maxPerPlace + 1 {
		a.note("ada", "here", fmt.Sprint(n))
	}
	require.Len(t, a.of("ada", "here"), maxPerPlace)
	require.Equal(t, fmt.Sprint(maxPerPlace), a.of("ada", "here")[0], "the latest first")
	require.Empty(t, a.of("bob", "here"), "another tenant's")
	a.drop("ada", "here", fmt.Sprint(maxPerPlace))
	require.Len(t, a.of("ada", "here"), maxPerPlace-1)
}
