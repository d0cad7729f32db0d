package keyring_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/keyring"
)

// All hubs of a store have the same pairs. A new key is in use for them when it is for
// what is sealed, and the replaced ones follow it.
func TestPairs(t *testing.T) {
	t.Parallel()
	store, now := newMemory(), time.Unix(1_700_000_000, 0)
	o := keyring.Options{Store: store, Now: func() time.Time { return now }}
	ring, err := keyring.New(o)
	require.NoError(t, err)
	_, err = ring.Pairs(keyring.Agents)
	require.ErrorIs(t, err, keyring.ErrUnavailable)
	require.NoError(t, ring.Refresh(t.Context()))
	first, err := ring.Pairs(keyring.Agents)
	require.NoError(t, err)
	require.Len(t, first, 1)
	links, err := ring.Pairs(keyring.Links)
	require.NoError(t, err)
	require.NotEqual(t, first, links, "each purpose has its own")

	now = now.Add(time.Hour)
	_, err = ring.Rotate(t.Context())
	require.NoError(t, err)
	early, err := ring.Pairs(keyring.Agents)
	require.NoError(t, err)
	require.Equal(t, first, early, "not every hub knows the new one")
	now = now.Add(keyring.Spread)
	other, err := keyring.Open(t.Context(), o)
	require.NoError(t, err)
	for _, r := range []*keyring.Ring{ring, other} {
		later, err := r.Pairs(keyring.Agents)
		require.NoError(t, err)
		require.Len(t, later, 2)
		require.Equal(t, first[0], later[1])
	}
	const most = 32
	for range most {
		now = now.Add(time.Hour)
		_, err = ring.Rotate(t.Context())
		require.NoError(t, err)
	}
	now = now.Add(keyring.Spread)
	many, err := ring.Pairs(keyring.Agents)
	require.NoError(t, err)
	require.Len(t, many, most)
}
