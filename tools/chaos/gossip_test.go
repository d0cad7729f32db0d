package main

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/freeport"
)

func TestEar(t *testing.T) {
	t.Parallel()
	address, err := freeport.Address()
	require.NoError(t, err)
	member, err := net.ListenPacket("udp", address)
	require.NoError(t, err)
	t.Cleanup(func() { member.Close() })
	e, err := newEar(address)
	require.NoError(t, err)
	t.Cleanup(e.close)
	sender, err := net.Dial("udp", e.addr())
	require.NoError(t, err)
	t.Cleanup(func() { sender.Close() })
	say := func(text string) {
		_, err := sender.Write([]byte(text))
		require.NoError(t, err)
	}
	hear := func() string {
		buffer := make([]byte, 10)
		require.NoError(t, member.SetReadDeadline(time.Now().Add(patience)))
		n, _, err := member.ReadFrom(buffer)
		require.NoError(t, err)
		return string(buffer[:n])
	}
	say("first")
	require.Equal(t, "first", hear())

	e.part()
	say("second")
	require.Eventually(t, func() bool { return e.lost.Load() == 1 }, patience, time.Millisecond)
	c, err := net.Dial("tcp", e.addr())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	_, err = c.Read(make([]byte, 1))
	require.Error(t, err, "a stream does not pass either")
	require.EqualValues(t, 1, e.streams.refused.Load())
	e.heal()
	say("third")
	require.Equal(t, "third", hear(), "the second is lost")

	e.slow()
	say("fourth")
	require.Equal(t, "fourth", hear())
	require.EqualValues(t, 1, e.late.Load())
	e.heal()

	e.leak()
	require.Eventually(t, func() bool { say("x"); return e.lost.Load() > 1 }, patience, time.Millisecond)
	require.Equal(t, "x", func() string { e.heal(); say("x"); return hear() }())
}
