package world_test

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
)

// photo is a picture that a person sends.
func photo(t *testing.T, side int) []byte {
	t.Helper()
	img := image.NewNRGBA(image.Rect(0, 0, side, side))
	for i := range img.Pix {
		img.Pix[i] = 255
	}
	img.Set(1, 1, color.NRGBA{R: 200, A: 255})
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, img))
	return b.Bytes()
}

func TestConversation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ada := r.Fake.Person(1, "en")

		// A picture from words, with the words and the seed under it.
		asked, _ := ada.Say("/generate@" + fakebot.Username + " a red fox --ar 2:1 --steps 4")
		picture := r.pictures(ada, asked, 1)[0]
		require.Contains(t, picture.Text, "a red fox\nSeed ")
		require.Equal(t, 2*picture.File.Height, picture.File.Width)
		require.Empty(t, picture.ParseMode)
		r.wait(ada, "the status message goes", func(list []fakebot.Message) bool {
			return len(filter(list, answering(asked, func(m fakebot.Message) bool { return m.Kind == "text" }))) == 0
		})

		// Its buttons.
		ada.Press(picture.ID, button(t, picture, "Again"))
		second := r.pictures(ada, asked, 2)[1]
		require.NotEqual(t, picture.Text, second.Text, "again with a new seed")
		ada.Press(picture.ID, button(t, picture, "As file"))
		r.waitFor(ada, "the file", func(m fakebot.Message) bool { return m.Kind == "document" && m.File.Hash == picture.File.Hash })
		ada.Press(picture.ID, button(t, picture, "Upscale"))
		large := r.waitFor(ada, "the large one", func(m fakebot.Message) bool { return m.File.Width == 2*picture.File.Width })
		require.Equal(t, asked, large.ReplyTo)
		ada.Press(picture.ID, button(t, picture, "Variations"))
		list := r.wait(ada, "an album of four", func(list []fakebot.Message) bool {
			return len(filter(list, func(m fakebot.Message) bool { return m.Album != "" })) == 4
		})
		album := filter(list, func(m fakebot.Message) bool { return m.Album != "" })
		require.Contains(t, album[0].Text, "a red fox")
		require.Empty(t, album[1].Text, "one caption for all")
		done := r.waitFor(ada, "the buttons of the album", saying("✓ 4 ready in"))
		require.NotEmpty(t, button(t, done, "Variations"))

		// A photo with a caption, an answer to a photo, and a command without a photo.
		_, _ = ada.Send(fakebot.Draft{Text: "/edit in autumn --steps 4 --strength 0.5", Photo: photo(t, 128)})
		r.waitFor(ada, "the edited photo", saying("in autumn"))
		enlarge, _ := ada.Send(fakebot.Draft{Text: "/upscale", ReplyTo: picture.ID})
		require.Equal(t, 2*picture.File.Width, r.pictures(ada, enlarge, 1)[0].File.Width)
		for _, c := range [][2]string{
			{"/edit in winter", "/edit needs a picture"}, {"/generate", "What do you want to see"}, {"/generate a --size 9999x9999", "too large"},
			{"/generate a --colour red", "There's no --colour"}, {"/generate a --cfg 400", "--cfg can be from 0 to 100, not 400."},
			{"/generate a --sampler dpmp_2n", "Did you mean dpm"}, {"/help generate", "--sampler: euler, "},
			{"/generate something FORBIDDEN", "I won't make that"}, {"/broken", "Sorry, that didn't work"}, {"/nonsense", "I don't know that command"},
		} {
			ada.Say(c[0])
			r.waitFor(ada, c[0], saying(c[1]))
		}
		adjusted, _ := ada.Say("/generate a red fox --ar 2:1 --steps 4 --cfg 4 --sampler DPMPP_2M --seed 7")
		usual, _ := ada.Say("/generate a red fox --ar 2:1 --steps 4 --seed 7")
		require.NotEqual(t, r.pictures(ada, usual, 1)[0].File.Hash, r.pictures(ada, adjusted, 1)[0].File.Hash)

		// Questions about one's own account and the fleet.
		r.askUntil(ada, "/status", "2 image servers online")
		r.askUntil(ada, "/queue", "Nothing in your queue")
		ada.Say("/help")
		help := r.waitFor(ada, "help", saying("I make pictures"))
		require.Contains(t, help.Text, "/generate - a picture from words")
		require.Contains(t, help.Text, "/broadcast", "an operator sees the operator's commands")

		// A message that is changed while its request waits.
		changed, _ := ada.Say("/endless")
		r.waitFor(ada, "the status", answering(changed, func(fakebot.Message) bool { return true }))
		ada.Edit(changed, "/poster --seed 7 -n 2")
		r.pictures(ada, changed, 2)
		r.waitFor(ada, "the old one is stopped", answering(changed, saying("Stopped.")))
		require.NotContains(t, r.log.String(), "red fox", "what people ask for is in no log")
	})
}

func TestRussianGroupsAndSettings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		boris := r.Fake.Person(77, "ru-RU")
		boris.Say("/help")
		menu := r.waitFor(boris, "help in Russian", saying("/generate - картинка"))
		require.NotContains(t, menu.Text, "/broadcast", "only operators see those")
		boris.Say("/settings")
		settings := r.waitFor(boris, "settings", saying("Настройки"))
		require.Equal(t, "Сохранено.", r.answered(boris.Press(settings.ID, button(t, settings, "Присылать файлом"))))
		asked, _ := boris.Say("/work")
		r.waitFor(boris, "a file", answering(asked, func(m fakebot.Message) bool { return m.Kind == "document" }))
		r.answered(boris.Press(settings.ID, button(t, settings, "English")))
		r.waitFor(boris, "settings in English", saying("Settings"))

		// In a group, the bot reacts only to messages for it, keeps to the topic, and lets only the
		// author cancel.
		const group = -500
		here := boris.In(group)
		here.Say("just talking")
		here.Say("/work@another_bot")
		asked, _ = here.Send(fakebot.Draft{Text: "/endless@" + fakebot.Username, Topic: 9})
		status := r.waitFor(here, "the status", answering(asked, func(fakebot.Message) bool { return true }))
		require.Equal(t, 9, status.Topic)
		carl := r.Fake.Person(78, "en").In(group)
		require.Contains(t, r.answered(carl.Press(status.ID, button(t, status, "Cancel"))), "isn't yours")
		require.NotEmpty(t, r.answered(carl.Press(status.ID, button(t, status, "Status"))))
		require.NotContains(t, r.answered(here.Press(status.ID, button(t, status, "Cancel"))), "isn't yours")
		r.waitFor(here, "stopped", saying("Stopped."))
		require.Len(t, filter(here.All(), func(m fakebot.Message) bool { return m.FromBot }), 1, "nothing else was said")
	})
}
