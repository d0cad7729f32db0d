package members

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/gossip"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// A hub that was met is gone when nothing listens at its address, or when the gossip has given it
// up. What is said about an earlier process of it no longer counts.
func TestOtherHubsThatAreGone(t *testing.T) {
	t.Parallel()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { listener.Close() })
	var hubs otherHubs
	tell := func(boot int64, left bool) {
		hubs.note(gossip.Event{Member: gossip.Member{Role: gossip.RoleHub, Name: hubName("b"), Boot: boot, Addr: listener.Addr().String()}, Left: left})
	}
	gone := func() bool { return hubs.gone(t.Context(), "b/boot") }
	require.False(t, gone(), "it was never met")
	tell(2, true)
	require.False(t, gone(), "nor when it leaves")
	tell(2, false)
	require.False(t, gone(), "it listens")
	tell(2, true)
	require.True(t, gone(), "the gossip has given it up")
	tell(2, false)
	require.False(t, gone(), "it was only frozen")
	tell(3, false)
	tell(2, true)
	tell(2, false)
	require.False(t, gone(), "it has restarted")
	require.False(t, hubs.gone(t.Context(), "c/boot"))
	require.NoError(t, listener.Close())
	require.True(t, gone(), "its port is closed")
}
