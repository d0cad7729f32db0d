package hub

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/retention"
)

// retainAt is retain at a given time of Redis's clock.
func (b *bench) retainAt(now time.Time) error {
	return b.hub.janitor.RetainSince(b.t.Context(), func(age time.Duration) time.Time { return now.Add(-age) })
}

// Held pictures age by the storage's clock; the hub's is years behind here.
func TestHeldPicturesAgeByTheStoragesClock(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 0)
		now, err := b.hub.storage.Now(t.Context())
		require.NoError(t, err)
		require.Greater(t, time.Until(now), 24*time.Hour)
		put := func(id string, age time.Duration) {
			t.Helper()
			before := folderOf(t, b)
			require.NoError(t, b.hub.held.Put(t.Context(), "default", id, strings.NewReader("picture")))
			for path := range folderOf(t, b) {
				if !before[path] {
					require.NoError(t, os.Chtimes(path, now.Add(-age), now.Add(-age)))
				}
			}
		}
		put("young", 23*time.Hour)
		put("old", 25*time.Hour)
		b.hub.janitor.Round(t.Context())
		require.True(t, b.hub.held.Has(t.Context(), "default", "young"))
		require.False(t, b.hub.held.Has(t.Context(), "default", "old"))
	})
}

// folderOf has the held pictures of a hub.
func folderOf(t *testing.T, b *bench) map[string]bool {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(b.hub.storage.Dir(), "held", "*", "*"))
	require.NoError(t, err)
	all := map[string]bool{}
	for _, path := range paths {
		all[path] = true
	}
	return all
}

// setForward sets the time that Redis's scripts see forward.
func (b *bench) setForward(d time.Duration) {
	b.t.Helper()
	ctx, db := b.t.Context(), b.hub.db
	require.NoError(b.t, db.Client().HSet(ctx, db.Key("clock"), "ahead", d.Milliseconds()).Err())
	now, err := db.Now(ctx)
	require.NoError(b.t, err)
	require.WithinDuration(b.t, time.Now().Add(d), now, time.Minute)
}

// If Redis's clock was set forward by a day, the history of the last hour stays until it is as old
// as it may get.
func TestHistoryStaysWhenTheClockIsSetForward(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1, func(b *bench) { b.settings.HistoryAge = time.Hour })
		id, name, _ := b.made(picture(0xff))
		b.setForward(24 * time.Hour)
		stays := func() bool {
			b.hub.janitor.Round(t.Context())
			_, there := b.history(id)
			require.Equal(t, there, b.views(name))
			return there
		}
		<-time.After(50 * time.Minute)
		require.True(t, stays())
		<-time.After(15 * time.Minute)
		require.False(t, stays())
	})
}

// If Redis's clock was set forward by a month, what is in the trash stays there for its week.
func TestTrashStaysWhenTheClockIsSetForward(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.hub.janitor.Full = func() bool { return false } // whatever the disk of this machine is
		for _, data := range []string{"red", "green"} {
			b.overwrites(t, data)
		}
		b.setForward(30 * 24 * time.Hour)
		trashed := func() int {
			all, n, err := b.hub.Operator().Trash(t.Context(), "", 10)
			require.NoError(t, err)
			for _, trashed := range all {
				require.WithinDuration(t, time.Now(), trashed.Since, retention.SweepAge)
				require.True(t, trashed.Until.After(time.Now()))
			}
			return n
		}
		b.hub.janitor.Round(t.Context())
		require.Equal(t, 1, trashed())
		<-time.After(10 * time.Minute)
		b.hub.janitor.Round(t.Context())
		require.Equal(t, 1, trashed())
		require.NoError(t, b.retainAt(time.Now().Add(retention.SweepAge-time.Hour)))
		require.Equal(t, 1, trashed())
		require.NoError(t, b.retainAt(time.Now().Add(retention.SweepAge)))
		require.Zero(t, trashed())
	})
}

// If Redis's clock was set forward, a drain still gives the run as much time as it was told to.
func TestDrainWhileTheClockIsSetForward(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1)
		id := b.submit(work(3600, 1, "none"), "ann") // more than a minute
		state := func(want string) func() bool { return func() bool { return b.explain(id).State == want } }
		eventually(t, state("running"), time.Minute, time.Second)
		require.NoError(t, b.hub.Operator().Drain(t.Context(), b.hub.fleet.Instances()[0].Name, 40*time.Second))
		b.setForward(time.Hour)
		<-time.After(35 * time.Second)
		require.True(t, state("running")())
		eventually(t, state("queued"), 15*time.Second, time.Second)
	})
}
