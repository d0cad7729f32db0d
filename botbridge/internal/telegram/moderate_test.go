package telegram

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
)

// A message that is gone was removed; one that is too old was not.
func TestDeleteIsHonest(t *testing.T) {
	t.Parallel()
	tg, fake := newTelegram(t, fakebot.Options{}, Options{})
	for _, old := range []bool{false, true} {
		ids, err := tg.Send(t.Context(), home, platform.Post{Text: "x"})
		require.NoError(t, err)
		if old {
			fake.Age(7)
			require.ErrorIs(t, tg.Delete(t.Context(), home, ids[0]), platform.ErrRefused)
			continue
		}
		require.NoError(t, tg.Delete(t.Context(), home, ids[0]))
		require.NoError(t, tg.Delete(t.Context(), home, ids[0]))
	}
}

func TestModerates(t *testing.T) {
	t.Parallel()
	tg, fake := newTelegram(t, fakebot.Options{}, Options{})
	fake.Moderate(5)
	group := platform.Chat{ID: "-9", Group: true}
	for user, want := range map[string]bool{"5": true, "6": false, "-9": true, "x": false} {
		got, err := tg.Moderates(t.Context(), group, user)
		require.NoError(t, err)
		require.Equal(t, want, got, user)
	}
}
