package dispatch

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

// survivor starts another hub over the same queue, whose sweeps are 20 minutes apart:
// it gets runs in no other way than from hubs that are gone.
func (b *dispatching) survivor(gone func(context.Context, string) bool) {
	b.config.Hub, b.config.HubID, b.config.Gone = "other/1", "other", gone
	b.Dispatcher = New(b.config)
	b.Start()
}

// among gives a hub others to tell that it is alive.
func among(b *dispatching, c *Config) {
	b.settings.Lease = time.Hour
	c.Gone = func(context.Context, string) bool { return false }
}

// Another hub takes over a run long before its lease ends, from a hub that was killed
// and from one that stops. It follows the run and does not begin another.
func TestRunOfAHubThatIsGone(t *testing.T) {
	inBubbles(t, map[string]func(*Dispatcher){
		"killed":  func(d *Dispatcher) { d.stop() }, // it says nothing any more
		"stopped": (*Dispatcher).Close,
	}, func(t *testing.T, end func(*Dispatcher)) {
		b := newDispatching(t, 1, among)
		first := b.Dispatcher
		t.Cleanup(first.Close)
		key := b.submit(working)
		b.runs(key)
		end(first)
		b.survivor(func(_ context.Context, hub string) bool { return hub == "hub/1" })
		eventually(t, func() bool { return b.job(key).Run.Hub == "other/1" }, deadline, 10*time.Millisecond)
		require.Empty(t, b.reaches(key, job.Done).Lost)
		require.Equal(t, 1, b.instances[0].Started(), "it ran once")
		eventually(t, func() bool {
			silent, _, err := b.queue.Beat(t.Context(), "third/1", time.Hour)
			return err == nil && len(silent) == 0
		}, deadline, 10*time.Millisecond, "there is nothing left to take")
	})
}

// A hub that is only cut off from Redis keeps its runs until their leases end, and so
// does one whose instance nobody else reaches.
func TestRunOfASilentHubThatLives(t *testing.T) {
	inBubbles(t, map[string]bool{"it lives": false, "its instance is out of reach": true}, func(t *testing.T, gone bool) {
		b := newDispatching(t, 1, among)
		first := b.Dispatcher
		t.Cleanup(first.Close)
		key := b.submit(endless)
		b.runs(key)
		first.stop()
		if gone {
			b.fleet.RemoveStatic(b.instances[0].name)
		}
		var asked atomic.Int32
		b.survivor(func(context.Context, string) bool { asked.Add(1); return gone })
		eventually(t, func() bool { return asked.Load() >= 3 }, deadline, 10*time.Millisecond)
		require.Equal(t, "hub/1", b.job(key).Run.Hub)
		require.Nil(t, b.followed(key))
	})
}

// A hub that was frozen finds out at once that another has its runs, and leaves them to
// it.
func TestFrozenHubLosesItsRuns(t *testing.T) {
	t.Parallel()
	b := newDispatching(t, 1, among)
	key := b.submit(endless)
	b.runs(key)
	eventually(t, func() bool {
		_, _, err := b.queue.Beat(t.Context(), "other/1", time.Hour)
		require.NoError(t, err)
		_, _, err = b.queue.Beat(t.Context(), "hub/1", time.Millisecond) // as if it had been silent since
		require.NoError(t, err)
		_, err = b.queue.Inherit(t.Context(), b.job(key).Run, "other/1")
		return err == nil
	}, deadline, 2*time.Millisecond)
	b.leaves(key)
	j := b.job(key)
	require.Equal(t, job.Running, j.State)
	require.Equal(t, "other/1", j.Run.Hub)
	require.Empty(t, j.Lost)
	require.Equal(t, 1, b.instances[0].Started())
	must(b.queue.Cancel(t.Context(), key))
}
