package caddymodule_test

import (
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

const done = `comfyhub_jobs_total{outcome="done"}`

// After a reload in the middle of a run the socket, the run and the counters
// are still there, and the new settings hold.
func TestReloadKeepsWhatIsGoingOn(t *testing.T) {
	s := newSite(t)
	s.start("max_upload 1MiB")
	socket := s.dial("ann")

	first := s.prompt("ann", 0.1, 1)
	socket.awaitEnd(first)
	s.await(func() bool { return s.metric(done) == 1 })

	second := s.prompt("ann", 5, 2)
	s.await(func() bool { return s.metric("comfyhub_jobs_running") == 1 })
	require.NoError(t, s.load("max_upload 1KiB"))
	// More than 1 where the reload takes as long as the run.
	require.GreaterOrEqual(t, s.metric(done), 1.0, "counters go on")
	require.InDelta(t, 1, s.metric("comfyhub_sockets"), 0)
	// The new settings hold, as soon as the old server accepts nothing more.
	s.await(func() bool { return s.postSized(2<<10) == http.StatusRequestEntityTooLarge })

	types := socket.awaitEnd(second)
	require.Contains(t, types, "execution_success")
	require.Equal(t, 1, count(types, "execution_start"), "the run was not lost")
	s.await(func() bool { return s.metric(done) == 2 })
}

// A configuration that cannot start leaves no trace in the one that serves.
// Apps start in random order, so it is tried often: with the hub's app before
// and after the one that fails.
func TestFailedReloadIsHarmless(t *testing.T) {
	s := newSite(t)
	s.start("max_upload 1MiB")
	socket := s.dial("ann")
	for range 10 {
		// 192.0.2.0/24 is for documentation: nobody can listen there.
		err := s.load("max_upload 1KiB", "http://:8188 {\n\tbind 192.0.2.1\n\trespond ok\n}")
		require.Error(t, err)
		require.NotEqual(t, http.StatusRequestEntityTooLarge, s.postSized(2<<10), "the old settings hold")
		ready, answer := s.call(http.MethodGet, s.admin, "/comfyhub/ready", "")
		require.Equal(t, http.StatusOK, ready, answer)
	}
	socket.awaitEnd(s.prompt("ann", 0.1, 1))
}

// What makes the hub another one while the old one holds the port is refused
// with the way out.
func TestChangedIdentityNeedsARestart(t *testing.T) {
	s := newSite(t)
	s.start("")
	socket := s.dial("ann")
	old := s.data
	s.data = t.TempDir()
	require.ErrorContains(t, s.load(""), "restart instead of reloading")
	s.data = old
	socket.awaitEnd(s.prompt("ann", 0.1, 1))
}

// A hub that shares nothing with the old one takes over, and the old one says
// goodbye.
func TestAnotherHubTakesOver(t *testing.T) {
	s := newSite(t)
	s.start("")
	socket := s.dial("ann")
	goodbye := socket.closing()
	s.data, s.gossip = t.TempDir(), freeAddress(t)
	s.start("")
	require.Equal(t, websocket.StatusGoingAway, <-goodbye)
	s.dial("ann").awaitEnd(s.prompt("ann", 0.1, 1))
}

// Sockets end with a close frame that tells clients to come back.
func TestStopSaysGoodbye(t *testing.T) {
	s := newSite(t)
	s.start("")
	socket := s.dial("ann")
	goodbye := socket.closing()
	require.NoError(t, caddy.Stop())
	require.Equal(t, websocket.StatusGoingAway, <-goodbye)
}

func TestManyReloadsLeakNothing(t *testing.T) {
	s := newSite(t)
	s.start("")
	socket := s.dial("ann")
	require.NoError(t, s.load("")) // what only the second configuration starts
	before := settled(t)
	for range 100 {
		require.NoError(t, s.load(""))
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+3 }, patience, 100*time.Millisecond,
		"%d goroutines before, %d after", before, runtime.NumGoroutine())
	socket.awaitEnd(s.prompt("ann", 0.1, 1))
}

// settled waits until the number of goroutines stays the same, and returns it.
func settled(t *testing.T) int {
	t.Helper()
	last, same := 0, 0
	require.Eventually(t, func() bool {
		now := runtime.NumGoroutine()
		if now == last {
			same++
		} else {
			last, same = now, 0
		}
		return same == 5
	}, patience, 100*time.Millisecond)
	return last
}

// postSized posts a prompt of so many bytes that is not JSON, and returns the
// status: 413 if that is too large, otherwise what ComfyUI answers.
func (s *site) postSized(bytes int) int {
	s.t.Helper()
	status, _ := s.call(http.MethodPost, s.api, "/prompt", strings.Repeat("x", bytes))
	return status
}

// closing reads until the socket is closed and hands over the status.
func (c *socket) closing() <-chan websocket.StatusCode {
	status := make(chan websocket.StatusCode, 1)
	go func() {
		for {
			if _, _, err := c.conn.Read(c.t.Context()); err != nil {
				status <- websocket.CloseStatus(err)
				return
			}
		}
	}()
	return status
}

func count(types []string, wanted string) (n int) {
	for _, t := range types {
		if t == wanted {
			n++
		}
	}
	return n
}
