package telegram

import (
	"bytes"
	"image"
	"image/png"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// What people type in any chat is heard of if that is on, and answered with a button or with a
// picture that Telegram has.
func TestInline(t *testing.T) {
	tg, fake := parallel(t, fakebot.Options{Inline: true}, Options{Inline: true, Logger: slog.New(slog.DiscardHandler)})
	require.Contains(t, updatesFor(true), "inline_query")
	require.NoError(t, tg.introduceOnce(t.Context()))
	require.True(t, tg.Limits().Inline)
	ada := fake.Person(7, "en")
	query := ada.Query("a red fox")
	updates := must.Get(tg.getUpdates(t.Context(), 0))(t)
	e, ok := tg.event(updates[0])
	require.True(t, ok)
	e.At = time.Time{}
	require.Equal(t, platform.Event{
		ID: "1", Platform: Name, Kind: platform.Queried, Press: query, User: platform.User{ID: "7", Name: "Person 7", Language: "en"},
		Chat: platform.Chat{ID: "7"}, Message: platform.Message{Text: "a red fox"},
	}, e)
	require.NoError(t, tg.Offer(t.Context(), query, platform.Offer{Label: "Make it", Start: "abc-1"}))
	offered, _ := fake.Offered(query)
	require.Equal(t, fakebot.Offer{Label: "Make it", Start: "abc-1"}, offered)
	require.ErrorIs(t, tg.Offer(t.Context(), "another", platform.Offer{}), platform.ErrRefused)

	var data bytes.Buffer
	require.NoError(t, png.Encode(&data, image.NewGray(image.Rect(0, 0, 64, 64))))
	ids := must.Get(tg.Send(t.Context(), home, platform.Post{Files: []platform.Attachment{attachment("a.png", platform.Photo, data.String())}}))(t)
	query = ada.Query("#1")
	require.NoError(t, tg.Offer(t.Context(), query, platform.Offer{Shown: &platform.Original{Chat: home.ID, Message: ids[0]}}))
	offered, _ = fake.Offered(query)
	require.Len(t, offered.Photos, 1)
	require.ErrorIs(t, tg.Offer(t.Context(), query, platform.Offer{Shown: &platform.Original{Chat: home.ID, Message: "999"}}), platform.ErrGone)
}

// Without BotFather's consent nothing is promised, and the operator is told.
func TestInlineIsOff(t *testing.T) {
	tg, _ := parallel(t, fakebot.Options{}, Options{Inline: true, Logger: slog.New(slog.DiscardHandler)})
	_, err := tg.Me(t.Context())
	require.ErrorIs(t, err, ErrNoInline)
	require.NoError(t, tg.introduceOnce(t.Context()))
	require.False(t, tg.Limits().Inline)
}
