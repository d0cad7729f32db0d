package hub

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

// What is overwritten at one hub, and what goes because of its age, is in the trash of both.
func TestTrashOfTwoHubs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		one, two := newPair(t, 1, 0)
		one.hub.janitor.full = func() bool { return false } // whatever the disk of this machine is
		for _, data := range []string{"red", "green"} {
			one.overwrites(t, data)
		}
		id, name, _ := one.made(picture(0xff))
		one.settings.HistoryAge = time.Hour
		require.NoError(t, one.hub.Start(t.Context(), one.settings))
		require.NoError(t, one.hub.janitor.retainAt(t.Context(), time.Now().Add(2*time.Hour)))
		_, there := two.history(id)
		require.False(t, there)
		require.False(t, two.views(name))

		all, n, err := two.hub.Operator().Trash(t.Context(), "default", 10)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		for _, trashed := range all {
			_, err := two.hub.Operator().TakeBack(t.Context(), "default", trashed.ID)
			require.NoError(t, err)
			_, err = one.hub.Operator().TakeBack(t.Context(), "default", trashed.ID)
			require.ErrorIs(t, err, ErrNotInTrash)
		}
		require.True(t, one.views(name))
		_, body := one.get("/view?type=input&filename=fox.png")
		require.Equal(t, "red", string(body))

		// A storage that is full has no room for a trash.
		one.overwrites(t, "blue")
		one.hub.janitor.full = func() bool { return true }
		require.NoError(t, one.hub.janitor.retainAt(t.Context(), time.Now()))
		_, n, err = two.hub.Operator().Trash(t.Context(), "", 10)
		require.NoError(t, err)
		require.Zero(t, n)
		one.hub.janitor.full = func() bool { return false }

		// What takes too much room is gone.
		one.settings.HistoryAge, one.settings.HistorySize = 0, 1
		require.NoError(t, one.hub.Start(t.Context(), one.settings))
		require.NoError(t, one.hub.janitor.retainAt(t.Context(), time.Now().Add(2*time.Hour)))
		require.False(t, two.views(name))
		_, n, err = two.hub.Operator().Trash(t.Context(), "", 10)
		require.NoError(t, err)
		require.Zero(t, n)
		_, _, err = New(one.id).Operator().Trash(t.Context(), "", 1)
		require.ErrorIs(t, err, ErrNotStarted)
		_, err = New(one.id).Operator().TakeBack(t.Context(), "default", "x")
		require.ErrorIs(t, err, ErrNotStarted)
	})
}

// overwrites uploads a file in place of the one of its name.
func (b *bench) overwrites(t *testing.T, data string) {
	t.Helper()
	_, err := b.hub.store.Upload(t.Context(), "default", job.FileRef{Type: job.TypeInput, Filename: "fox.png"}, true, strings.NewReader(data))
	require.NoError(t, err)
}
