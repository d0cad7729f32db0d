package hub

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/gossip"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// Two hubs that share a data folder are two.
func TestIDsOnOneFolder(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	one := New(config.Identity{Data: folder, GossipBind: "127.0.0.1:0"}).ownID()
	two := New(config.Identity{Data: folder, GossipBind: "localhost:0"}).ownID()
	require.NotEqual(t, one, two)
	again := New(config.Identity{Data: folder, GossipBind: "127.0.0.1:0"}).ownID()
	require.Equal(t, one, again)
}

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

// A power cut may leave anything of an id. The hub gets another, which then lasts.
func TestTornID(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "id")
	for _, left := range []string{"", "0123", "0123456789\x00\x00\x00\x00\x00\x00", "0123456789zzzzzz"} {
		require.NoError(t, os.WriteFile(path, []byte(left), 0o600))
		id, err := lasting(path, 8)
		require.NoError(t, err)
		require.Regexp(t, `^[0-9a-f]{16}$`, id)
		again, err := lasting(path, 8)
		require.NoError(t, err)
		require.Equal(t, id, again)
	}
}

// A hub that took a torn mark for the storage's would never serve again.
func TestTornMark(t *testing.T) {
	t.Parallel()
	const mark = "8f0c3f52-9b3f-4c0e-8a55-0d9f6a0c1b2d"
	for left, expected := range map[string]string{
		"": "", "LOCATION": "", "LOCATION\n": "", "LOCATION\n" + mark[:20]: "", "LOCATION\n" + mark: "", "LOCATION\n\x00\x00\x00\n": "",
		"elsewhere\n" + mark + "\n": "", "LOCATION\n" + mark + "\n": mark,
	} {
		id := config.Identity{Data: t.TempDir(), Storage: t.TempDir()}
		h := New(id)
		var err error
		h.storage, err = files.OpenStorage(t.Context(), id.Storage)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(h.markPath(), []byte(strings.Replace(left, "LOCATION", id.Storage, 1)), 0o600))
		h.recallMark()
		require.Equal(t, expected, h.storage.Health().Mark(), "%q", left)
	}
}
