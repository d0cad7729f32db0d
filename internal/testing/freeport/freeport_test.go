package freeport

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestPortsAreGivenOnce(t *testing.T) {
	t.Parallel()
	var c chooser
	seen := map[string]bool{}
	for range ring * (blockSize - 1) {
		a := must.Get(c.choose(1))(t)
		require.False(t, seen[a], a)
		seen[a] = true
	}
	for _, b := range c.blocks {
		require.False(t, seen[b.lock.Addr().String()])
	}
	again := must.Get(c.choose(1))(t)
	require.True(t, seen[again], "they are free again, as nobody took them")
	c.release(t)
}

func TestTwoProcessesShareNoPort(t *testing.T) {
	t.Parallel()
	var one, two chooser
	a := must.Get(one.choose(1))(t)
	b := must.Get(two.choose(1))(t)
	require.NotEqual(t, one.blocks[0].first, two.blocks[0].first)
	require.NotEqual(t, a, b)
	one.release(t)
	two.release(t)
}

func TestTakenPortsAreLeftOut(t *testing.T) {
	t.Parallel()
	var c chooser
	_, err := c.choose(1)
	require.NoError(t, err)
	tcp := must.Get(net.Listen("tcp", address(c.blocks[0].first+3)))(t)
	defer tcp.Close()
	udp := must.Get(net.ListenPacket("udp", address(c.blocks[0].first+7)))(t)
	defer udp.Close()
	a := must.Get(c.choose(4))(t)
	require.Equal(t, address(c.blocks[0].first+8), a, "four in a row lie behind both")
	next := must.Get(c.choose(1))(t)
	require.Equal(t, address(c.blocks[0].first+12), next)
	_, err = c.choose(blockSize)
	require.ErrorIs(t, err, ErrNone, "so many there are not")
	c.release(t)
}

func TestMorePortsThanABlock(t *testing.T) {
	t.Parallel()
	var c chooser
	seen := map[string]bool{}
	for range 3 {
		a := must.Get(c.choose(60))(t)
		require.False(t, seen[a], a)
		seen[a] = true
		first := c.blocks[len(c.blocks)-1].first
		listen, err := net.Listen("tcp", address(first+blockSize/2)) // among each 60 of the block
		require.NoError(t, err)
		defer listen.Close()
	}
	require.Len(t, c.blocks, 3)
	c.release(t)
}

func (c *chooser) release(t *testing.T) {
	for _, b := range c.blocks {
		require.NoError(t, b.lock.Close())
	}
}
