package hub

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/peers"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// A client comes to another hub while Redis is away, and the hub that ran its prompt
// is killed: nobody is left to say that the prompt has ended, but the history.
func TestEndIsFoundWhateverDied(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	k := stream.Key{Tenant: job.DefaultTenant, Client: "ann"}
	direct := peers.New(redistest.Open(t, server.URL()), "test")
	const arriving, broken, healed = 1, 2, 3
	var state atomic.Int32
	proxy := redistest.NewProxy(t, server.Addr(), func() bool {
		if state.Load() == arriving {
			// From the moment on when Redis knows where the client is now.
			if owners, err := direct.Owners(t.Context(), []stream.Key{k}); err == nil && owners[0].Hub != "" {
				state.CompareAndSwap(arriving, broken)
			}
		}
		return state.Load() == broken
	})
	one := newBench(t, 1, func(b *bench) { b.id.Redis = server.URL() })
	two := newBench(t, 0, func(b *bench) {
		b.id.Redis, b.id.Data, b.id.GossipBind = proxy.URL(), one.id.Data, "localhost:0"
	})
	id := one.submit(picture(3), "ann")
	one.finished(id)
	one.kill()
	state.Store(arriving)
	socket := two.dial("ann")
	eventually(t, func() bool { return proxy.Lost() > 10 }, time.Minute, time.Millisecond)
	state.Store(healed)
	types := socket.until(id)
	require.Equal(t, "execution_start", types[0])
	require.Contains(t, types, "executed")
	require.Equal(t, "execution_success", types[len(types)-2])
	require.NoError(t, two.hub.ends.look(t.Context()))
	requireDelivered(t, two, socket, id)
}

// A client has read the end of its prompt while Redis is away. Redis is told when it
// is back, so that no other hub tells the client again.
func TestConfirmedEndWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := newBench(t, 1, func(b *bench) { b.id.Redis = server.URL() })
	id := b.submit(picture(3), "ann")
	b.finished(id)
	k := stream.Key{Tenant: job.DefaultTenant, Client: "ann"}
	waiting, err := b.hub.queue.Undelivered(t.Context(), k.Tenant, k.Client)
	require.NoError(t, err)
	require.Len(t, waiting, 1)
	server.Stop()
	b.hub.ends.delivered(k, id)
	server.Start()
	eventually(t, func() bool {
		waiting, err := b.hub.queue.Undelivered(t.Context(), k.Tenant, k.Client)
		return err == nil && len(waiting) == 0
	}, time.Minute, 10*time.Millisecond)
}

// Ends that are too old to be told are not read again at each look.
func TestOldEndsAreSkipped(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1, func(b *bench) { b.settings.ReplayWindow = time.Millisecond })
		id := b.submit(picture(3), "ann")
		b.finished(id)
		k := stream.Key{Tenant: job.DefaultTenant, Client: "ann"}
		ends, err := b.hub.queue.Unconfirmed(t.Context(), []job.Requester{{Tenant: k.Tenant, Client: k.Client}}, 9)
		require.NoError(t, err)
		require.Len(t, ends[0], 1)
		// Until the stream has forgotten it, it counts as told.
		eventually(t, func() bool {
			old, err := b.hub.ends.lookAt(t.Context(), stream.Present{Key: k, Since: time.Now()}, ends[0], 0)
			return err == nil && old == ends[0][0].Turn
		}, time.Minute, time.Millisecond)
	})
}

// forgotten waits until a client's stream knows nothing more of its prompt, and returns the
// job's key.
func (b *bench) forgotten(k stream.Key, id string) (key string) {
	b.t.Helper()
	j, err := b.hub.jobs.Find(b.t.Context(), k.Tenant, id)
	require.NoError(b.t, err)
	eventually(b.t, func() bool {
		told, running := b.hub.streams.Told(k, j.Key)
		return !told && !running
	}, time.Minute, time.Millisecond)
	return j.Key
}

// A client whose socket has been open all the time is told an end that nobody could tell it
// for longer than the replay window.
func TestWaitingClientIsToldLate(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1, func(b *bench) { b.settings.ReplayWindow = time.Millisecond })
		began := time.Now()
		id := b.submit(picture(3), "ann")
		b.finished(id)
		k := stream.Key{Tenant: job.DefaultTenant, Client: "ann"}
		key := b.forgotten(k, id)
		b.hub.streams.SetLimits(stream.Limits{ReplayWindow: time.Minute})
		ends, err := b.hub.queue.Unconfirmed(t.Context(), []job.Requester{{Tenant: k.Tenant, Client: k.Client}}, 9)
		require.NoError(t, err)
		eventually(t, func() bool {
			old, err := b.hub.ends.lookAt(t.Context(), stream.Present{Key: k, Since: began}, ends[0], 0)
			told, _ := b.hub.streams.Told(k, key)
			return err == nil && old == 0 && told
		}, time.Minute, 10*time.Millisecond)
		types := b.dial("ann").until(id)
		require.Equal(t, "execution_success", types[len(types)-2])
	})
}

// A client was away for longer than its stream is kept, and its prompt has ended
// shortly before it returns to the hub that ran it.
func TestOwnEndIsFoundInTheHistory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.hub.streams.SetLimits(stream.Limits{ReplayWindow: time.Nanosecond})
		id := b.submit(picture(3), "ann")
		b.finished(id)
		b.forgotten(stream.Key{Tenant: job.DefaultTenant, Client: "ann"}, id)
		socket := b.dial("ann")
		types := socket.until(id)
		require.Equal(t, "execution_start", types[0])
		require.Equal(t, "execution_success", types[len(types)-2])
		requireDelivered(t, b, socket, id)
	})
}
