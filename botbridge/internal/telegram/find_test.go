package telegram

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// What is in a chat is told by what Telegram lets the bot edit, and nothing is changed by it.
func TestFind(t *testing.T) {
	lose := false
	tg, fake := parallel(t, fakebot.Options{Fault: func(method string) fakebot.Fault {
		if lose && method != "editMessageCaption" && method != "editMessageText" {
			return fakebot.GatewayAfter
		}
		return fakebot.None
	}}, Options{})
	buttons := [][]platform.Button{{{Label: "Again", Data: "ag:1"}}}
	posts := map[string]platform.Post{
		"words":       {Text: "hello", Buttons: buttons},
		"a picture":   {Text: " a fox ", Buttons: buttons, Files: []platform.Attachment{picture(t)}},
		"a document":  {Files: []platform.Attachment{attachment("a.txt", platform.Document, "x")}},
		"an album":    {Text: "foxes", Files: []platform.Attachment{picture(t), picture(t)}},
		"a long text": {Text: strings.Repeat("x", 5000), Files: []platform.Attachment{picture(t)}},
	}
	for chat, numbered := range map[string]bool{"7": false, "-1000000000009": true} {
		in := platform.Chat{ID: chat, Group: numbered}
		person := fake.Person(7, "en")
		if numbered {
			person = person.In(-1000000000009)
		}
		require.Empty(t, tg.Newest(platform.Chat{ID: chat + "1"}, platform.Post{Asks: true}, ""))
		for name, p := range posts {
			must.Get(tg.Send(t.Context(), in, platform.Post{Text: "before"}))(t)
			person.Mutter("nobody tells the bot of this")
			after := tg.Newest(in, p, "")
			require.NotEmpty(t, after)
			lose = true
			_, err := tg.Send(t.Context(), in, p)
			lose = false
			require.ErrorIs(t, err, platform.ErrUncertain, name)
			lost := person.All()
			lost = lost[len(lost)-max(1, len(p.Files)):]
			must.Get(tg.Send(t.Context(), platform.Chat{ID: "8"}, platform.Post{Text: "another chat"}))(t)

			list, all := tg.Candidates(in, after, "", max(1, len(p.Files)))
			require.True(t, all)
			var found []int
			for _, message := range list {
				if must.Get(tg.Is(t.Context(), in, message, p, len(found)))(t) {
					found = append(found, number(message))
				}
			}
			var want []int
			for _, m := range lost {
				want = append(want, m.ID)
			}
			require.Equal(t, want, found, "%s in %s", name, chat)
			for _, m := range person.All() {
				require.Zero(t, m.Edits, "%s: nothing is changed: %+v", name, m)
			}
			tg.sender.numbers.note(groupIn(in), found...)
		}
	}
	list, all := tg.Candidates(home, "1", "99999", 1)
	require.False(t, all)
	require.Len(t, list, maxCandidates)
	require.Equal(t, "5000", tg.Newest(home, platform.Post{ReplyTo: "5000"}, "7"))
}
