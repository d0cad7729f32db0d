package world_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakediscord"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakellm"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// careful is a bot.yaml with terms, other words, and a service that looks at results. It
// covers what was asked for with the word "cover" and refuses "withhold".
func careful(t *testing.T) (change func(*options), llm *fakellm.Fake, judged *atomic.Int64) {
	t.Helper()
	llm = must.Get(fakellm.New())(t)
	judged = new(atomic.Int64)
	judge := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		judged.Add(1)
		words, verdict := strings.ToLower(r.FormValue("request")), "allow"
		switch {
		case strings.Contains(words, "cover"):
			verdict = "spoiler"
		case strings.Contains(words, "withhold"):
			verdict = "refuse"
		}
		_, _ = io.WriteString(w, `{"verdict": "`+verdict+`", "reason": "too wild"}`)
	})
	t.Cleanup(func() {
		require.Empty(t, llm.Broken())
	})
	return func(o *options) {
		o.Config += "terms: {en: Be kind., ru: Будьте людьми.}\n" +
			"enhance: {url: http://llm/v1, model: " + fakellm.Model + ", key: {file: llm_key}, translate: true}\n" +
			"results: {hook: http://judge}\n"
		o.Services = map[string]http.Handler{"llm": llm, "judge": judge}
	}, llm, judged
}

// From the terms by way of better words to the picture, with the bridge killed while a
// user makes up their mind.
func TestTermsWordsAndResults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		change, llm, judged := careful(t)
		r := newRig(t, change)
		ada := r.Fake.Person(40, "en")
		asked, _ := ada.Say("/generate a fox --enhance")
		terms := r.waitFor(ada, "the terms", fakebot.Saying("Be kind."))
		require.Empty(t, llm.Calls())
		r.Bridge.Kill()
		r.Bridge.Start(t)
		ada.Press(terms.ID, button(t, terms, "I accept"))
		offer := r.waitFor(ada, "better words", fakebot.Saying("A FOX"))
		r.Bridge.Kill()
		r.Bridge.Start(t)
		ada.Press(offer.ID, button(t, offer, "Make it"))
		require.Len(t, r.pictures(ada, asked, 1), 1)
		require.EqualValues(t, 1, judged.Load())

		withheld, _ := ada.Say("/generate withhold it")
		r.waitFor(ada, "why it is not shown", fakebot.Answering(withheld, fakebot.Saying("1 file isn't shown here: too wild")))
		require.Empty(t, fakebot.Filter(ada.Sees(), fakebot.Answering(withheld, fakebot.IsPicture)))

		ada.Say("рыжая лиса")
		r.waitFor(ada, "words in English", fakebot.Saying("In English:\n\nРЫЖАЯ ЛИСА"))

		ada.Say("/export")
		r.waitFor(ada, "what is kept", func(m fakebot.Message) bool {
			return m.Kind == "document" && strings.Contains(m.Text, "This is everything I keep")
		})
		ada.Say("/forget me")
		sure := r.waitFor(ada, "whether that is meant", fakebot.Saying("Delete what I keep about you"))
		ada.Press(sure.ID, button(t, sure, "Yes, delete"))
		r.waitFor(ada, "what remains", fakebot.Saying("What I still know"))
		ada.Say("/generate a bear")
		r.wait(ada, "the terms again", func(list []fakebot.Message) bool { return len(fakebot.Filter(list, fakebot.Saying("Be kind."))) >= 1 })
	})
}

// The same on Discord, where a covered file is called so.
func TestTermsWordsAndResultsOnDiscord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		change, _, _ := careful(t)
		r := newDiscordRig(t, fakediscord.Options{}, change)
		ada := r.member("4", "en-US")
		ada.Use("generate", prompt("cover it"), fakediscord.Option{Name: "enhance", Value: true})
		r.presses(ada, r.sees(ada, "the terms", says("Be kind.")), "I accept")
		r.presses(ada, r.sees(ada, "better words", says("COVER IT")), "Make it")
		done := r.sees(ada, "the picture", hasFiles(1))
		require.True(t, strings.HasPrefix(done.Files[0], "SPOILER_"), done.Files[0])
	})
}

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
		r.waitFor(ada, "the edited photo", fakebot.Answering(asked, fakebot.Saying("in autumn")))
		asked, _ = ada.Send(fakebot.Draft{Text: "in winter --steps 4", ReplyTo: picture.ID})
		edited := r.pictures(ada, asked, 1)[0]
		require.Contains(t, edited.Text, "in winter\nSeed ")

		// A question, and a restart before its answer.
		ada.Say("/edit in spring --steps 4")
		r.waitFor(ada, "the question", fakebot.Saying("/edit needs a picture"))
		r.Bridge.Kill()
		r.Bridge.Start(t)
		asked, _ = ada.Send(fakebot.Draft{Photo: photo(t, 128)})
		r.waitFor(ada, "the answer", fakebot.Answering(asked, fakebot.Saying("in spring")))

		// Words are a result, with no picture at all.
		asked, _ = ada.Send(fakebot.Draft{Text: "/describe a fox", Photo: photo(t, 64)})
		r.waitFor(ada, "the words", fakebot.Answering(asked, fakebot.Saying("I see a fox")))
		list := r.wait(ada, "both texts, and nothing else", func(list []fakebot.Message) bool {
			return len(fakebot.Filter(list, fakebot.Answering(asked, func(m fakebot.Message) bool { return !m.Deleted }))) == 2
		})
		require.Empty(t, fakebot.Filter(list, fakebot.Answering(asked, fakebot.IsPicture)))

		// What was made can be found again, and is not uploaded for that.
		ada.Say("/my winter")
		found := r.waitFor(ada, "the list", fakebot.Saying("1. /edit in winter"))
		uploads := r.Fake.Calls()["sendPhoto"]
		ada.Press(found.ID, button(t, found, "1"))
		again := r.waitFor(ada, "the picture again", func(m fakebot.Message) bool { return m.ID > found.ID && m.File.Hash == edited.File.Hash })
		require.Equal(t, uploads, r.Fake.Calls()["sendPhoto"])
		asked, _ = ada.Send(fakebot.Draft{Text: "in summer --steps 4", ReplyTo: again.ID})
		r.waitFor(ada, "a change of the copy", fakebot.Answering(asked, fakebot.Saying("in summer")))
		ada.Say("/models")
		r.waitFor(ada, "the models", fakebot.Saying("/generate: always v1-5-pruned-emaonly-fp16.safetensors"))
	})
}
