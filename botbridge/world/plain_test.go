package world_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
)

// Somebody talks to the bot without commands, is asked for what is missing, gets words as
// a result, and finds the pictures again.
func TestWithoutCommands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *options) {
			o.Config = strings.Replace(botYAML, "commands:\n", "commands:\n  describe: {workflow: describe.json, inputs: {prompt: 2.string_b}}\n", 1) +
				"default_edit_command: edit\n"
		})
		ada := r.Fake.Person(1, "en")

		asked, _ := ada.Say("a red fox --ar 2:1 --steps 4")
		picture := r.pictures(ada, asked, 1)[0]
		require.Contains(t, picture.Text, "a red fox\nSeed ")
		asked, _ = ada.Send(fakebot.Draft{Text: "in autumn --steps 4", Photo: photo(t, 128)})
		r.waitFor(ada, "the edited photo", answering(asked, saying("in autumn")))
		asked, _ = ada.Send(fakebot.Draft{Text: "in winter --steps 4", ReplyTo: picture.ID})
		edited := r.pictures(ada, asked, 1)[0]
		require.Contains(t, edited.Text, "in winter\nSeed ")

		// A question, and a restart before its answer.
		ada.Say("/edit in spring --steps 4")
		r.waitFor(ada, "the question", saying("/edit needs a picture"))
		r.Bridge.Kill()
		r.Bridge.Start(t)
		asked, _ = ada.Send(fakebot.Draft{Photo: photo(t, 128)})
		r.waitFor(ada, "the answer", answering(asked, saying("in spring")))

		// Words are a result, with no picture at all.
		asked, _ = ada.Send(fakebot.Draft{Text: "/describe a fox", Photo: photo(t, 64)})
		r.waitFor(ada, "the words", answering(asked, saying("I see a fox")))
		list := r.wait(ada, "both texts, and nothing else", func(list []fakebot.Message) bool {
			return len(filter(list, answering(asked, func(m fakebot.Message) bool { return !m.Deleted }))) == 2
		})
		require.Empty(t, filter(list, answering(asked, isPicture)))

		// What was made can be found again, and is not uploaded for that.
		ada.Say("/my winter")
		found := r.waitFor(ada, "the list", saying("1. /edit in winter"))
		uploads := r.Fake.Calls()["sendPhoto"]
		ada.Press(found.ID, button(t, found, "1"))
		again := r.waitFor(ada, "the picture again", func(m fakebot.Message) bool { return m.ID > found.ID && m.File.Hash == edited.File.Hash })
		require.Equal(t, uploads, r.Fake.Calls()["sendPhoto"])
		asked, _ = ada.Send(fakebot.Draft{Text: "in summer --steps 4", ReplyTo: again.ID})
		r.waitFor(ada, "a change of the copy", answering(asked, saying("in summer")))
		ada.Say("/models")
		r.waitFor(ada, "the models", saying("/generate: always v1-5-pruned-emaonly-fp16.safetensors"))
	})
}
