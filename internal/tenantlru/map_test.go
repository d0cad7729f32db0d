package tenantlru

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMapIsBounded(t *testing.T) {
	t.Parallel()
	var m Map[int]
	set := func(tenant, key string, value int) { m.Change(tenant, key, func(v *int) { *v = value }) }
	get := func(tenant, key string) (value int) {
		m.Read(tenant, key, func(v *int) { value = *v })
		return value
	}
	set("quiet", "place", 1)
	for n := range maxKeysPerTenant + 100 {
		set("loud", fmt.Sprint(n), 2)
	}
	require.Len(t, m.tenants["loud"].keys, maxKeysPerTenant)
	require.Zero(t, get("loud", "99"), "the oldest are forgotten")
	require.Equal(t, 2, get("loud", "100"))
	for n := range maxKeys {
		set(fmt.Sprint("crowd", n%3), fmt.Sprint(n), 3)
	}
	require.Equal(t, maxKeys, m.size)
	require.Equal(t, 1, get("quiet", "place"), "not because others are loud")
	total := 0
	for _, own := range m.tenants {
		require.Len(t, own.keys, own.used.Len())
		total += len(own.keys)
	}
	require.Equal(t, m.size, total)
}
