package telegram

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
)

// A group has a menu of its own in every language, and loses it in every one.
func TestMenuOfAGroup(t *testing.T) {
	t.Parallel()
	tg, fake := newTelegram(t, fakebot.Options{}, Options{Commands: map[string][]Command{
		"": {{"draw", "a picture"}, {"film", "a film"}}, "ru": {{"draw", "картинка"}, {"film", "фильм"}},
	}})
	require.NoError(t, tg.introduceOnce(t.Context()))
	require.Equal(t, []string{"draw", "film"}, fake.Menu(-9, "ru"))
	group := platform.Chat{ID: "-9", Group: true}
	require.NoError(t, tg.Hide(t.Context(), group, []string{"film"}))
	for _, language := range []string{"ru", "en"} {
		require.Equal(t, []string{"draw"}, fake.Menu(-9, language))
		require.Equal(t, []string{"draw", "film"}, fake.Menu(-8, language), "other groups have the usual one")
	}
	require.NoError(t, tg.Hide(t.Context(), group, nil))
	require.Equal(t, []string{"draw", "film"}, fake.Menu(-9, "ru"))
	other, err := New(Options{Token: fakebot.Token, Commands: map[string][]Command{"": {{"draw", "another line"}}}})
	require.NoError(t, err)
	require.NotEqual(t, tg.Menu(), other.Menu())
}
