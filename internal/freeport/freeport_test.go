package freeport

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPortsAreGivenOnce(t *testing.T) {
	t.Parallel()
	var c chooser
	seen := map[string]bool{}
	for range blockSize - 1 {
		a, err := c.choose(1)
		require.NoError(t, err)
		require.False(t, seen[a], a)
		require.NotEqual(t, c.lock.Addr().String(), a)
		seen[a] = true
	}
	again, err := c.choose(1)
	require.NoError(t, err)
	require.True(t, seen[again], "they are free again, as nobody took them")
	require.NoError(t, c.lock.Close())
}

func TestTwoProcessesShareNoPort(t *testing.T) {
	t.Parallel()
	var one, two chooser
	a, err := one.choose(1)
	require.NoError(t, err)
	b, err := two.choose(1)
	require.NoError(t, err)
	require.NotEqual(t, one.first, two.first)
	require.NotEqual(t, a, b)
	require.NoError(t, one.lock.Close())
	require.NoError(t, two.lock.Close())
}

func TestTakenPortsAreLeftOut(t *testing.T) {
	t.Parallel()
	var c chooser
	_, err := c.choose(1)
	require.NoError(t, err)
	tcp, err := net.Listen("tcp", address(c.first+3))
	require.NoError(t, err)
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", address(c.first+7))
	require.NoError(t, err)
	defer udp.Close()
	a, err := c.choose(4)
	require.NoError(t, err)
	require.Equal(t, address(c.first+8), a, "four in a row lie behind both")
	next, err := c.choose(1)
	require.NoError(t, err)
	require.Equal(t, address(c.first+12), next)
	_, err = c.choose(blockSize)
	require.ErrorIs(t, err, ErrNone, "so many there are not")
	require.NoError(t, c.lock.Close())
}
