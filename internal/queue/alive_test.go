package queue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// beat records a beat that counts for an hour, and returns the silent hubs.
func (b *bench) beat(hub string, buried ...string) []string {
	b.t.Helper()
	silent, _, err := b.Beat(b.t.Context(), hub, time.Hour, buried...)
	require.NoError(b.t, err)
	return silent
}

// falls makes a hub silent whose runs others may take.
func (b *bench) falls(hub string) {
	b.t.Helper()
	_, _, err := b.Beat(b.t.Context(), hub, time.Millisecond)
	require.NoError(b.t, err)
}

// The runs of a hub that beats no more go to another one long before their leases
// end, and the hub can change nothing if it lives after all.
func TestInheritFromASilentHub(t *testing.T) {
	each(t, queue.Options{Lease: time.Hour}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		run := b.claim(b.enqueue("a"), "gpu").Run
		_, err := b.Inherit(ctx, run, "hub/2")
		require.ErrorIs(t, err, queue.ErrStale, "its hub has never beaten: one of an earlier version")
		require.Empty(t, b.beat("hub/1"))
		require.Empty(t, b.beat("hub/2"))
		_, err = b.Inherit(ctx, run, "hub/2")
		require.ErrorIs(t, err, queue.ErrStale, "its hub is alive")

		b.falls("hub/1")
		require.Eventually(t, func() bool { return len(b.beat("hub/2")) == 1 }, time.Minute, time.Millisecond)
		other := run
		other.Hub = "hub/3"
		_, err = b.Inherit(ctx, other, "hub/2")
		require.ErrorIs(t, err, queue.ErrStale, "the run is not of that hub")
		o := must(b.Inherit(ctx, run, "hub/2"))
		require.Greater(t, o.Fence, run.Fence)
		require.Equal(t, "hub/2", o.Hub)
		require.Equal(t, []string{run.Upstream, run.SID, run.Instance}, []string{o.Upstream, o.SID, o.Instance})
		_, err = b.Inherit(ctx, run, "hub/3")
		require.ErrorIs(t, err, queue.ErrStale, "one gets it")

		_, late, err := b.Beat(ctx, "hub/1", time.Hour)
		require.NoError(t, err)
		require.True(t, late, "it learns that others may have its runs")
		require.Equal(t, []job.Run{run}, must(b.Renew(ctx, "hub/1", []job.Run{run})).Lost)
		require.ErrorIs(t, b.Finish(ctx, run, done("{}")), queue.ErrStale)
		require.NoError(t, b.Finish(ctx, o.Run, done("{}")))
		require.Empty(t, b.beat("hub/2"))
	})
}

// A hub that stops says so, and its runs are free at once. Silent hubs without runs
// are forgotten.
func TestQuit(t *testing.T) {
	each(t, queue.Options{Lease: time.Hour}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		require.NoError(t, b.Quit(ctx, "hub/1"), "before it ever beat")
		require.Empty(t, b.beat("hub/2"))
		run := b.claim(b.enqueue("a"), "gpu").Run
		b.beat("hub/1")
		require.NoError(t, b.Quit(ctx, "hub/1"))
		require.Equal(t, []string{"hub/1"}, b.beat("hub/2"))
		must(b.Inherit(ctx, run, "hub/2"))
		require.Equal(t, []string{"hub/1"}, b.beat("hub/3"))
		require.Empty(t, b.beat("hub/2", "hub/1", "hub/3"), "a hub that lives is not forgotten")
		require.NoError(t, b.Quit(ctx, "hub/3"))
		require.Equal(t, []string{"hub/3"}, b.beat("hub/2"))
		b.lua(`write('ZADD', key('q', 'hubs'), '1', 'hub/3')`, "")
		require.Empty(t, b.beat("hub/2"), "forgotten after an hour")
	})
}

// While Redis is away no hub can beat. The first one that is back takes nothing from
// the others.
func TestAllHubsWereSilent(t *testing.T) {
	each(t, queue.Options{Lease: time.Hour}, func(t *testing.T, b *bench) {
		run := b.claim(b.enqueue("a"), "gpu").Run
		b.beat("hub/1")
		b.beat("hub/2")
		b.lua(`write('ZADD', key('q', 'hubs'), int(now() - 5000), 'hub/1', int(now() - 4000), 'hub/2')`, "")
		silent, late, err := b.Beat(t.Context(), "hub/2", time.Hour)
		require.NoError(t, err)
		require.True(t, late)
		require.Empty(t, silent)
		_, err = b.Inherit(t.Context(), run, "hub/2")
		require.ErrorIs(t, err, queue.ErrStale)
	})
}
