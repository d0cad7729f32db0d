package hub

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/gossip"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// A hub that was met is gone when nothing listens at its address, or when the gossip has given it
// up. What is said about an earlier process of it no longer counts.
func TestOtherHubsThatAreGone(t *testing.T) {
	t.Parallel()
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
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

// kill acts like kill -9 for a hub: nothing that it does or says reaches the other hubs any more.
func (b *bench) kill() {
	b.t.Helper()
	require.NoError(b.t, b.hub.db.Close())
	b.stop()
}

// The hub that follows a job is killed. The hub that has the client's socket takes
// the job over, and the client gets one end.
func TestHubIsKilledWhileAnotherHasTheSocket(t *testing.T) {
	inPair(t, 1, 0, func(t *testing.T, one, two *bench) {
		socket := two.dial("ann")
		id := one.submit(work(200, 1, "none"), "ann")
		require.Equal(t, "execution_start", socket.next().Type)
		one.kill()
		two.settings.Instances = one.settings.Instances
		require.NoError(t, two.hub.Start(t.Context(), two.settings))
		types := socket.until(id)
		require.Equal(t, "execution_success", types[len(types)-2])
		require.Contains(t, types, "executed")
		require.Equal(t, 1, started(one), "it was taken over, not run again")
		next := two.submit(picture(5), "ann")
		socket.until(next)
		requireDelivered(t, two, socket, id)
	})
}

// The hub that has the client's socket is killed, and the client connects to the other one.
func TestHubWithTheSocketIsKilled(t *testing.T) {
	inPair(t, 1, 0, func(t *testing.T, one, two *bench) {
		socket := two.dial("ann")
		id := one.submit(work(20, 1, "none"), "ann")
		require.Equal(t, "execution_start", socket.next().Type)
		two.kill()
		one.finished(id)
		socket = one.dial("ann")
		types := socket.until(id)
		require.Equal(t, "execution_start", types[0])
		require.Equal(t, "execution_success", types[len(types)-2])
		requireDelivered(t, one, socket, id)
	})
}

// The hub that ran a job is killed before it can report the end, so the end comes from the history.
func TestEndOfAKilledHub(t *testing.T) {
	inPair(t, 1, 0, func(t *testing.T, one, two *bench) {
		id := one.submit(picture(3), "ann")
		one.finished(id)
		one.kill()
		// The other hub was never told anything about the job.
		socket := two.dial("ann")
		types := socket.until(id)
		require.Equal(t, "execution_start", types[0])
		require.Contains(t, types, "executed")
		require.Equal(t, "execution_success", types[len(types)-2])
		requireDelivered(t, two, socket, id)
	})
}

// A picture went only over a socket, and the hub that had it is killed. Its client is told that the
// picture is lost, not that all is well, even if it posts the prompt again.
func TestPictureOfAKilledHub(t *testing.T) {
	inPair(t, 1, 0, func(t *testing.T, one, two *bench) {
		graph := strings.Replace(picture(3), "SaveImage", "SaveImageWebsocket", 1)
		id := uuid.NewString()
		post := func(b *bench) {
			b.posts("/prompt", fmt.Sprintf(`{"prompt": %s, "client_id": "ann", "prompt_id": %q}`, graph, id))
		}
		post(one)
		one.finished(id)
		one.kill()
		socket := two.dial("ann")
		told := func() {
			t.Helper()
			var types []string
			var last string
			for len(types) == 0 || types[len(types)-1] != "executing" {
				m := socket.next()
				require.Equal(t, id, m.Data.PromptID)
				types = append(types, m.Type)
				if m.Type == "execution_error" {
					last = m.raw
				}
			}
			require.NotContains(t, types, "execution_success")
			require.Contains(t, last, "was lost on its way")
			require.Contains(t, last, `"node_type": "SaveImageWebsocket"`)
		}
		told()
		requireDelivered(t, two, socket, id)
		socket = two.dial("ann")
		post(two)
		told()
	})
}

// A hub accepts what only another hub's instance can run, and lets it wait for that
// instance. It refuses what no hub's instance can run.
func TestPromptForAnotherHubsInstance(t *testing.T) {
	inPair(t, 1, 0, func(t *testing.T, one, two *bench) {
		two.settings.Instances = []string{newInstance(t, sim.Config{OmitClasses: []string{"SimulatedWork"}}).url()}
		require.NoError(t, two.hub.Start(t.Context(), two.settings))
		two.connected(1)
		eventually(t, func() bool { return slices.Contains(two.hub.inventory.catalog().Classes(), "SimulatedWork") }, time.Minute, 10*time.Millisecond)
		require.Equal(t, "success", two.finished(two.submit(work(1, 7, "none"), "ann")).Status.Text)
		require.Equal(t, 1, started(one))
		require.Equal(t, http.StatusBadRequest, statusOf(two.post("/prompt", `{"prompt": {"1": {"class_type": "Nowhere", "inputs": {}}}}`)))
	})
}

// A restarting hub refuses no prompt just because the first of its instances cannot run it: it
// knows what the others could run.
func TestCatalogsOutliveARestart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1, serving(sim.Config{OmitClasses: []string{"SimulatedWork"}}))
		eventually(t, func() bool {
			seen, err := b.hub.db.Client().HLen(t.Context(), b.hub.db.Key("fleet", "seen")).Result()
			return err == nil && seen == 2
		}, time.Minute, 10*time.Millisecond)
		b.stop()
		b.settings.Instances = []string{b.instances[1].url()}
		b.start()
		b.connected(1)
		id := b.submit(work(1, 7, "none"), "ann")
		b.settings.Instances = []string{b.instances[0].url(), b.instances[1].url()}
		require.NoError(t, b.hub.Start(t.Context(), b.settings))
		require.Equal(t, "success", b.finished(id).Status.Text)
	})
}

// A socket with live events sees two jobs that run at the same time, at one hub or at two.
func TestLiveEvents(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		option bool
		query  string
	}{
		"handler option": {option: true},
		"query":          {query: "&events=live"},
	} {
		runInBubble(t, name, func(t *testing.T) {
			b := newBench(t, 2, func(b *bench) { b.live = c.option })
			watchLive(t, b.dial("ann"+c.query), b, b)
		})
		runInBubble(t, name+" at another hub", func(t *testing.T) {
			one, two := newPair(t, 1, 1)
			two.live = c.option
			watchLive(t, two.dial("ann"+c.query), one, two)
		})
	}
}

// watchLive runs two jobs at the same time and requires both to be seen before either ends.
func watchLive(t *testing.T, socket *client, at ...*bench) {
	t.Helper()
	open := map[string]bool{}
	for n, b := range at {
		open[b.submit(work(3600, n, "none"), "ann")] = true
	}
	seen := map[string]int{}
	for len(seen) < 2 || slices.Min(slices.Collect(maps.Values(seen))) < 3 {
		m := socket.next()
		require.True(t, open[m.Data.PromptID], m.raw)
		seen[m.Data.PromptID]++
	}
	for id := range open {
		at[0].posts("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, id))
	}
	last := map[string]string{}
	for len(open) > 0 {
		m := socket.next()
		id := m.Data.PromptID
		if m.Type == "executing" && m.Data.Node == nil {
			require.Equal(t, "execution_interrupted", last[id])
			delete(open, id)
		}
		last[id] = m.Type
	}
}
