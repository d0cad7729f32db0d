package world_test

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
)

// Input from people who mean harm or know no better. The webhook's wrong secret is
// tested in doors_test.go.
func TestHostileInput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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
			r.waitFor(mallory, "help", answering(first, ofBot))
			for _, data := range []string{
				button(t, picture, "Again"), "ca:00000000-0000-0000-0000-000000000000", "zz:zz", "", "set:21:lang:xx", "set:1:file:on",
				"ag:{" + strings.Repeat("a", 36) + "}", "set:21:size:99999x1",
			} {
				require.Contains(t, []string{"This button no longer works.", "That one isn't yours."}, r.answered(mallory.Press(first, data)), data)
			}
			require.Empty(t, filter(mallory.All(), isPicture))
			id := strings.TrimPrefix(button(t, picture, "Again"), "ag:")
			// The picture arrives before its request is over.
			r.until("it is over", func() bool { return r.answered(eve.Press(picture.ID, "ca:"+id)) == "That's already done." })
		}

		{ // a message of a megabyte
			long := r.Fake.Person(22, "en")
			long.Say("/generate " + strings.Repeat("ab ", 350_000))
			r.waitFor(long, "too long", saying("That's too long"))
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
				_, warned := fakebot.Find(more.Sees(), saying("Slow down a little"))
				for range 10 {
					if !warned {
						more.Send(fakebot.Draft{Photo: photo(t, 16), Album: "y"})
					}
				}
				return warned
			})
			require.LessOrEqual(t, len(filter(flood.All(), ofBot)), 3)
			require.Len(t, filter(more.All(), saying("Slow down a little")), 1)
			require.LessOrEqual(t, len(filter(more.All(), isPicture)), 20)
		}

		{ // a banned user
			banned := r.Fake.Person(666, "en")
			banned.Say("/generate a")
			admin.Say("/ban 20")
			r.waitFor(admin, "the ban", saying("telegram:20 is banned"))
			eve.Say("/work")
			require.Empty(t, r.answered(eve.Press(picture.ID, button(t, picture, "Again"))))
			// The ban may end only once everything that was said under it has been handled;
			// what is left then is the question itself.
			r.askUntil(admin, "/stats", " 1 message to read")
			mallory.Say("/ban 1")
			r.waitFor(mallory, "no command of hers", saying("I don't know that command"))
			admin.Say("/unban 20")
			r.waitFor(admin, "the end of the ban", saying("no longer banned"))
			again, _ := eve.Say("/work")
			r.pictures(eve, again, 1)
			require.Len(t, filter(eve.All(), isPicture), 2, "what was said under the ban is not answered")
			require.Empty(t, filter(banned.All(), ofBot))
		}

		{ // a workflow with missing nodes
			asked, _ := mallory.Say("/missing")
			said := r.waitFor(mallory, "what is missing", answering(asked, saying("I couldn't make that")))
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
