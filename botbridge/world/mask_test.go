package world_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
)

// The two pictures of an album come as two messages, between which the bridge may be
// killed.
func TestMasks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *options) {
			o.Config = strings.ReplaceAll(botYAML, "block_users:", "allow_users: [\"telegram:30\"]\n  block_users:")
		})
		ada := r.Fake.Person(30, "en")
		asked, _ := ada.Send(fakebot.Draft{Text: "/inpaint a hat --steps 2", Photo: photo(t, 64), Album: "a"})
		r.Bridge.Kill()
		r.Bridge.Start(t)
		ada.Send(fakebot.Draft{Photo: photo(t, 65), Album: "a"})
		require.Equal(t, 64, r.pictures(ada, asked, 1)[0].File.Width)

		// The words under the second picture, and one picture too many.
		ada.Send(fakebot.Draft{Photo: photo(t, 128), Album: "b"})
		asked, _ = ada.Send(fakebot.Draft{Text: "/inpaint a scarf --steps 2", Photo: photo(t, 129), Album: "b"})
		ada.Send(fakebot.Draft{Photo: photo(t, 130), Album: "b"})
		require.Equal(t, 128, r.pictures(ada, asked, 1)[0].File.Width)

		// Somebody who may not use the bot.
		eve := r.Fake.Person(31, "en")
		eve.Send(fakebot.Draft{Text: "/inpaint a hat", Photo: photo(t, 64), Album: "c"})
		eve.Send(fakebot.Draft{Photo: photo(t, 64), Album: "c"})
		r.waitFor(eve, "a refusal", saying("This bot is private"))
		require.Empty(t, filter(eve.All(), isPicture))
	})
}
