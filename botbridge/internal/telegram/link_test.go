package telegram

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
)

// A button opens an address. One that Telegram does not take costs nobody the message.
func TestLinks(t *testing.T) {
	t.Parallel()
	tg, fake := newTelegram(t, fakebot.Options{}, Options{})
	row := []platform.Button{{Label: "Again", Data: "ag"}, {Label: "Help", URL: "https://example.com/help"}}
	for _, address := range []string{"http://localhost:8188/x", "tg://user?id=1", "javascript:alert(1)", "http://[", "https://"} {
		row = append(row, platform.Button{Label: "Odd", URL: address})
	}
	_, err := tg.Send(t.Context(), home, platform.Post{Text: "one", Buttons: [][]platform.Button{row}})
	require.NoError(t, err)
	require.Equal(t, []fakebot.Button{{Label: "Again", Data: "ag"}, {Label: "Help", URL: "https://example.com/help"}}, fake.Person(7, "").All()[0].Buttons)
}
