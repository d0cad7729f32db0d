package hub

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/fleet"
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

// A server whose disk is full gets no jobs, which nobody has asked for.
func TestCheckupOfAFullDisk(t *testing.T) {
	t.Parallel()
	f := fleet.Instance{Name: "gpu", Agent: "box", State: fleet.Draining, Reason: "its disk is full", Report: fleet.InstanceReport{DiskFull: true}}
	require.Contains(t, adviceFor(f), "--output-dir")
	f.State = fleet.Offline
	require.NotContains(t, adviceFor(f), "--output-dir")
}

// What the same servers lack is one finding, with few names; the number of findings is bounded.
func TestFindingsAreFew(t *testing.T) {
	t.Parallel()
	var all []catalog.Difference
	for n := range 1000 {
		name := strings.Repeat("m", n+1)
		all = append(all, catalog.Difference{Kind: catalog.DifferentFile, Name: name, Of: "Loader.file", Have: []string{"a"}, Lack: []string{"b", "c"}})
	}
	list := findingsOf(all, 3)
	require.Len(t, list, 1)
	require.Contains(t, list[0].Says, "and 995 more are on 1 of 3 instances, not on b, c")
	for n := range all {
		all[n].Lack = []string{all[n].Name}
	}
	list = findingsOf(all, 3)
	require.Len(t, list, maxFindings+1)
	require.Contains(t, list[maxFindings].Says, "and 950 more differences")
}

// However many ask whether the hub is ready, Redis is asked only once a second.
func TestReadyIsAskedByMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		var answer error
		r := readiness{ask: func(ctx context.Context) error {
			asked.Add(1)
			select {
			case <-time.After(100 * time.Millisecond):
				return answer
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		everybody := func() (failed int64) {
			var n atomic.Int64
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() {
					if r.check(t.Context()) != nil {
						n.Add(1)
					}
				})
			}
			all.Wait()
			return n.Load()
		}
		require.Zero(t, everybody())
		require.Zero(t, everybody())
		require.EqualValues(t, 1, asked.Load())
		time.Sleep(2 * readyFor)
		answer = errors.New("MISCONF")
		require.EqualValues(t, 50, everybody())
		require.ErrorContains(t, r.check(t.Context()), "MISCONF")
		require.EqualValues(t, 2, asked.Load())

		// A caller that asks on behalf of all and leaves does not spoil the answer of the others.
		time.Sleep(2 * readyFor)
		answer = nil
		leaving, leave := context.WithCancel(t.Context())
		leave()
		require.NoError(t, r.check(leaving))
		require.NoError(t, r.check(t.Context()))
		require.EqualValues(t, 3, asked.Load())
	})
}
