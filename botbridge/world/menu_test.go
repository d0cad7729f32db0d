package world_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
)

// What is below More, from outside: what made a picture, its workflow, another style, other
// words, and its removal, which a kill in between does not stop.
func TestMoreAboutAPicture(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *options) {
			o.Config = botYAML + "styles:\n  film: {prompt: \"{prompt}, 35mm film\", arguments: {cfg: 4}}\n"
		})
		ada := r.Fake.Person(50, "en")
		asked, _ := ada.Say("/generate a red fox --steps 2 --seed 11")
		picture := r.pictures(ada, asked, 1)[0]
		ada.Press(picture.ID, button(t, picture, "More"))
		menu := r.waitFor(ada, "the menu", answering(picture.ID, saying("Took ")))
		for _, want := range []string{"a red fox", "Seed 11", "2 steps", "Model: "} {
			require.Contains(t, menu.Text, want)
		}
		require.Contains(t, r.answered(ada.Press(menu.ID, button(t, menu, "Favourite"))), "Added to favourites")
		ada.Press(menu.ID, button(t, menu, "Workflow"))
		file := r.waitFor(ada, "the workflow", func(m fakebot.Message) bool { return m.Kind == "document" })
		require.NotZero(t, file.File.Size)

		ada.Press(menu.ID, button(t, menu, "Style"))
		styles := r.waitFor(ada, "the styles", saying("Which style would you like"))
		require.Equal(t, menu.ID, styles.ID, "in the same message")
		ada.Press(styles.ID, button(t, styles, "film"))
		require.Contains(t, r.pictures(ada, asked, 2)[1].Text, "film · Seed 11")

		words, _ := ada.Send(fakebot.Draft{Text: "/remix an owl", ReplyTo: picture.ID})
		other := r.pictures(ada, words, 1)[0]
		require.Contains(t, other.Text, "an owl")
		require.Contains(t, other.Text, "Seed 11")

		ada.Send(fakebot.Draft{Text: "/delete", ReplyTo: picture.ID})
		question := r.waitFor(ada, "the question", saying("Remove this picture"))
		r.Bridge.Kill()
		ada.Press(question.ID, button(t, question, "Yes"))
		r.Bridge.Start(t)
		r.wait(ada, "the picture and the question go", func(list []fakebot.Message) bool {
			return len(filter(list, func(m fakebot.Message) bool { return m.ID == picture.ID || m.ID == question.ID })) == 0
		})
		r.until("the picture is forgotten", func() bool {
			return strings.Contains(r.answered(ada.Press(menu.ID, button(t, menu, "Workflow"))), "no longer works")
		})
		r.Fake.Age(50)
		ada.Press(other.ID, button(t, other, "More"))
		menu = r.waitFor(ada, "its menu", answering(other.ID, saying("an owl")))
		ada.Press(menu.ID, button(t, menu, "Remove"))
		question = r.waitFor(ada, "the question", func(m fakebot.Message) bool { return m.ID == menu.ID && strings.Contains(m.Text, "Remove") })
		ada.Press(question.ID, button(t, question, "Yes"))
		r.waitFor(ada, "the truth", saying("Too old for me to remove"))
	})
}

// Four pictures come as one with numbers, whose buttons work after a restart.
func TestFourPictures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *options) {
			o.Config = strings.NewReplacer("{workflow: generate.json,", "{workflow: generate.json, several: grid,",
				"edit: {workflow: edit.json,", "edit: {workflow: edit.json, varies: true,").Replace(botYAML)
		})
		ada := r.Fake.Person(40, "en")
		asked, _ := ada.Say("/generate a red fox -n 4 --ar 2:1 --steps 2")
		sheet := r.pictures(ada, asked, 1)[0]
		require.Contains(t, sheet.Text, "a red fox")
		require.Greater(t, sheet.File.Width, 1200, "two beside each other")
		r.wait(ada, "the status message goes", func(list []fakebot.Message) bool {
			return len(filter(list, answering(asked, func(m fakebot.Message) bool { return m.Kind == "text" }))) == 0
		})
		r.Bridge.Kill()
		r.Bridge.Start(t)
		ada.Press(sheet.ID, button(t, sheet, "U2"))
		large := r.pictures(ada, asked, 2)[1]
		require.Equal(t, 2*large.File.Height, large.File.Width+large.File.Width%2, "one picture by itself")
		ada.Press(sheet.ID, button(t, sheet, "V3"))
		other := r.pictures(ada, asked, 3)[2]
		require.Contains(t, other.Text, "a red fox", "the same words")
		require.Contains(t, r.answered(r.Fake.Person(41, "en").Press(sheet.ID, button(t, sheet, "V1"))), "no longer works", "it is of another chat")
	})
}
