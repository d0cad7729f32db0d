package world_test

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakediscord"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakellm"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
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
	beside.Bubble(t, func(t *testing.T) {
		r := newRig(t)
		ada := r.Fake.Person(1, "en")

		// A picture from words, with the words and the seed under it.
		asked, _ := ada.Say("/generate@" + fakebot.Username + " a red fox --ar 2:1 --steps 4")
		picture := r.pictures(ada, asked, 1)[0]
		require.Contains(t, picture.Text, "a red fox\nSeed ")
		require.Equal(t, 2*picture.File.Height, picture.File.Width)
		require.Empty(t, picture.ParseMode)
		r.wait(ada, "the status message goes", func(list []fakebot.Message) bool {
			return len(fakebot.Filter(list, fakebot.Answering(asked, func(m fakebot.Message) bool { return m.Kind == "text" }))) == 0
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
			return len(fakebot.Filter(list, func(m fakebot.Message) bool { return m.Album != "" })) == 4
		})
		album := fakebot.Filter(list, func(m fakebot.Message) bool { return m.Album != "" })
		require.Contains(t, album[0].Text, "a red fox")
		require.Empty(t, album[1].Text, "one caption for all")
		done := r.waitFor(ada, "the buttons of the album", fakebot.Saying("✓ 4 ready in"))
		require.NotEmpty(t, button(t, done, "Variations"))

		// A photo with a caption, an answer to a photo, and a command without a photo.
		_, _ = ada.Send(fakebot.Draft{Text: "/edit in autumn --steps 4 --strength 0.5", Photo: photo(t, 128)})
		r.waitFor(ada, "the edited photo", fakebot.Saying("in autumn"))
		enlarge, _ := ada.Send(fakebot.Draft{Text: "/upscale", ReplyTo: picture.ID})
		require.Equal(t, 2*picture.File.Width, r.pictures(ada, enlarge, 1)[0].File.Width)
		for _, c := range [][2]string{
			{"/edit in winter", "/edit needs a picture"},
			{"/generate", "What do you want to see"},
			{"/generate a --size 9999x9999", "too large"},
			{"/generate a --colour red", "There's no --colour"},
			{"/generate a --cfg 400", "--cfg can be from 0 to 100, not 400."},
			{"/generate a --sampler dpmp_2n", "Did you mean dpm"},
			{"/help generate", "--sampler: euler, "},
			{"/generate something FORBIDDEN", "I won't make that"},
			{"/broken", "Sorry, that didn't work"},
			{"/nonsense", "I don't know that command"},
		} {
			ada.Say(c[0])
			r.waitFor(ada, c[0], fakebot.Saying(c[1]))
		}
		adjusted, _ := ada.Say("/generate a red fox --ar 2:1 --steps 4 --cfg 4 --sampler DPMPP_2M --seed 7")
		usual, _ := ada.Say("/generate a red fox --ar 2:1 --steps 4 --seed 7")
		require.NotEqual(t, r.pictures(ada, usual, 1)[0].File.Hash, r.pictures(ada, adjusted, 1)[0].File.Hash)

		// Questions about one's own account and the fleet.
		r.askUntil(ada, "/status", "2 image servers online")
		r.askUntil(ada, "/queue", "Nothing in your queue")
		ada.Say("/help")
		help := r.waitFor(ada, "help", fakebot.Saying("I make pictures"))
		require.Contains(t, help.Text, "/generate - a picture from words")
		require.Contains(t, help.Text, "/broadcast", "an operator sees the operator's commands")

		// A message that is changed while its request waits.
		changed, _ := ada.Say("/endless")
		r.waitFor(ada, "the status", fakebot.Answering(changed, func(fakebot.Message) bool { return true }))
		ada.Edit(changed, "/poster --seed 7 -n 2")
		r.pictures(ada, changed, 2)
		r.waitFor(ada, "the old one is stopped", fakebot.Answering(changed, fakebot.Saying("Stopped.")))
		require.NotContains(t, r.log.String(), "red fox", "what people ask for is in no log")
	})
}

func TestRussianGroupsAndSettings(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := newRig(t)
		boris := r.Fake.Person(77, "ru-RU")
		boris.Say("/help")
		menu := r.waitFor(boris, "help in Russian", fakebot.Saying("/generate - картинка"))
		require.NotContains(t, menu.Text, "/broadcast", "only operators see those")
		boris.Say("/settings")
		settings := r.waitFor(boris, "settings", fakebot.Saying("Настройки"))
		require.Equal(t, "Сохранено.", r.answered(boris.Press(settings.ID, button(t, settings, "Присылать файлом"))))
		asked, _ := boris.Say("/work")
		r.waitFor(boris, "a file", fakebot.Answering(asked, func(m fakebot.Message) bool { return m.Kind == "document" }))
		r.answered(boris.Press(settings.ID, button(t, settings, "English")))
		r.waitFor(boris, "settings in English", fakebot.Saying("Settings"))

		// In a group, the bot reacts only to messages for it, keeps to the topic, and lets only the
		// author cancel.
		const group = -500
		here := boris.In(group)
		here.Say("just talking")
		here.Say("/work@another_bot")
		asked, _ = here.Send(fakebot.Draft{Text: "/endless@" + fakebot.Username, Topic: 9})
		status := r.waitFor(here, "the status", fakebot.Answering(asked, func(fakebot.Message) bool { return true }))
		require.Equal(t, 9, status.Topic)
		carl := r.Fake.Person(78, "en").In(group)
		require.Contains(t, r.answered(carl.Press(status.ID, button(t, status, "Cancel"))), "isn't yours")
		require.NotEmpty(t, r.answered(carl.Press(status.ID, button(t, status, "Status"))))
		require.NotContains(t, r.answered(here.Press(status.ID, button(t, status, "Cancel"))), "isn't yours")
		r.waitFor(here, "stopped", fakebot.Saying("Stopped."))
		require.Len(t, fakebot.Filter(here.All(), func(m fakebot.Message) bool { return m.FromBot }), 1, "nothing else was said")
	})
}

// Input from people who mean harm or know no better. The webhook's wrong secret is
// tested in doors_test.go.
func TestHostileInput(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *options) {
			o.Config = strings.ReplaceAll(botYAML, "messages_per_10s: 60", "messages_per_10s: 12")
		})
		admin := r.Fake.Person(1, "en")
		eve := r.Fake.Person(20, "en")
		mallory := r.Fake.Person(21, "en")
		ofBot := func(m fakebot.Message) bool { return m.FromBot }
		var picture fakebot.Message

		{ // markdown and HTML injection
			nasty := `<b>*_[x](tg://user?id=1)_*</b> {seed} <script> \u202e`
			asked, _ := eve.Say("/generate " + nasty + " --steps 2")
			picture = r.pictures(eve, asked, 1)[0]
			require.Contains(t, picture.Text, nasty, "it is said back as it was written")
			require.Empty(t, picture.ParseMode)
		}

		{ // forged and stale buttons
			first, _ := mallory.Say("/help")
			r.waitFor(mallory, "help", fakebot.Answering(first, ofBot))
			for _, data := range []string{
				button(t, picture, "Again"), "ca:00000000-0000-0000-0000-000000000000", "zz:zz", "", "set:21:lang:xx", "set:1:file:on",
				"ag:{" + strings.Repeat("a", 36) + "}", "set:21:size:99999x1",
			} {
				require.Contains(t, []string{"This button no longer works.", "That one isn't yours."}, r.answered(mallory.Press(first, data)), data)
			}
			require.Empty(t, fakebot.Filter(mallory.All(), fakebot.IsPicture))
			id := strings.TrimPrefix(button(t, picture, "Again"), "ag:")
			// The picture arrives before its request is over.
			r.until("it is over", func() bool { return r.answered(eve.Press(picture.ID, "ca:"+id)) == "That's already done." })
		}

		{ // a message of a megabyte
			long := r.Fake.Person(22, "en")
			long.Say("/generate " + strings.Repeat("ab ", 350_000))
			r.waitFor(long, "too long", fakebot.Saying("That's too long"))
			// The longest text that Telegram allows, in letters of two bytes.
			asked, _ := long.Say("/generate " + strings.Repeat("ы", 4086) + " --steps 2")
			r.pictures(long, asked, 1)
		}

		{ // twenty photos in a second
			flood := r.Fake.Person(23, "en")
			for n := range 20 {
				flood.Send(fakebot.Draft{Photo: photo(t, 16), Album: "x" + strconv.Itoa(n/10)})
			}
			for range 20 {
				flood.Send(fakebot.Draft{Photo: photo(t, 16)})
			}
			r.waitFor(flood, "one hint or one warning", func(m fakebot.Message) bool {
				return strings.Contains(m.Text, "Nice!") || strings.Contains(m.Text, "Slow down a little")
			})
			// The same with a command under each photo. What fits is made, and the rest is
			// refused without a flood of answers.
			more := r.Fake.Person(24, "en")
			var asked []int
			for range 20 {
				m, _ := more.Send(fakebot.Draft{Text: "/edit in blue --steps 2", Photo: photo(t, 16)})
				asked = append(asked, m)
			}
			r.pictures(more, asked[0], 1)
			// A slow machine reads all of that slowly enough. In that case the test sends more
			// photos, of a kind that is read faster.
			r.until("a warning comes", func() bool {
				_, warned := fakebot.Find(more.Sees(), fakebot.Saying("Slow down a little"))
				for range 10 {
					if !warned {
						more.Send(fakebot.Draft{Photo: photo(t, 16), Album: "y"})
					}
				}
				return warned
			})
			require.LessOrEqual(t, len(fakebot.Filter(flood.All(), ofBot)), 3)
			require.Len(t, fakebot.Filter(more.All(), fakebot.Saying("Slow down a little")), 1)
			require.LessOrEqual(t, len(fakebot.Filter(more.All(), fakebot.IsPicture)), 20)
		}

		{ // a banned user
			banned := r.Fake.Person(666, "en")
			banned.Say("/generate a")
			admin.Say("/ban 20")
			r.waitFor(admin, "the ban", fakebot.Saying("telegram:20 is banned"))
			eve.Say("/work")
			require.Empty(t, r.answered(eve.Press(picture.ID, button(t, picture, "Again"))))
			// The ban may end only once everything that was said under it has been handled;
			// what is left then is the question itself.
			r.askUntil(admin, "/stats", " 1 message to read")
			mallory.Say("/ban 1")
			r.waitFor(mallory, "no command of hers", fakebot.Saying("I don't know that command"))
			admin.Say("/unban 20")
			r.waitFor(admin, "the end of the ban", fakebot.Saying("no longer banned"))
			again, _ := eve.Say("/work")
			r.pictures(eve, again, 1)
			require.Len(t, fakebot.Filter(eve.All(), fakebot.IsPicture), 2, "what was said under the ban is not answered")
			require.Empty(t, fakebot.Filter(banned.All(), ofBot))
		}

		{ // a workflow with missing nodes
			asked, _ := mallory.Say("/missing")
			said := r.waitFor(mallory, "what is missing", fakebot.Answering(asked, fakebot.Saying("I couldn't make that")))
			require.Contains(t, said.Text, "NodeOfNobody")
			require.Empty(t, said.Buttons, "to ask again would not help")
		}

		{ // a chat that has blocked the bot
			r.Fake.Block(21, true)
			mallory.Say("/work")
			last, _ := eve.Say("/work")
			r.pictures(eve, last, 1)
		}
	})
}

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
	t.Cleanup(func() { require.Empty(t, llm.Broken()) })
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
	beside.Bubble(t, func(t *testing.T) {
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
	beside.Bubble(t, func(t *testing.T) {
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
	beside.Bubble(t, func(t *testing.T) {
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
