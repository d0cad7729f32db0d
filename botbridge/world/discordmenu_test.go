package world_test

import (
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakediscord"
)

// The menu of a picture on Discord is for whoever opened it, and is one message.
func TestDiscordMenu(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newDiscordRig(t, fakediscord.Options{}, func(s *options) {
			s.Config = "files_url: http://hub1:8188\nhelp_url: https://example.com/bot\n" + s.Config
		})
		ada, bob := r.member("1", "en-US"), r.member("2", "en-US")
		ada.Use("generate", prompt("a red fox"), fakediscord.Option{Name: "seed", Value: 7})
		picture := r.sees(ada, "the picture", hasFiles(1))
		r.presses(bob, picture, "More")
		menu := r.sees(bob, "what made it", says("Took "))
		require.Equal(t, bob.ID, menu.Only)
		require.Contains(t, menu.Text, "Seed 7")
		r.presses(bob, menu, "Workflow")
		file := r.sees(bob, "the workflow", func(m fakediscord.Message) bool { return m.ID != picture.ID && len(m.Files) == 1 })
		require.Equal(t, bob.ID, file.Only)
		require.Contains(t, string(file.Bytes[0]), "a red fox")
		r.presses(bob, menu, "Remove")
		r.sees(bob, "a refusal", says("isn't yours"))

		original := opens(t, menu, "Original")
		response, err := r.web().Get(original) //nolint:noctx // the address is what is tested
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, picture.Bytes[0], body)
		bob.Use("help")
		require.Equal(t, "https://example.com/bot", opens(t, r.sees(bob, "the help", says("/my - ")), "More about me"))

		// New words are filled into a form that has the present ones.
		press, err := bob.Press(menu.ID, "New words")
		require.NoError(t, err)
		form, err := bob.Form(r.ctx, press)
		require.NoError(t, err)
		require.Equal(t, "a red fox", form.Fields[0].Value)
		_, err = bob.Submit(form, map[string]string{"prompt": "a blue bear"})
		require.NoError(t, err)
		bear := r.sees(bob, "a picture with the new words", func(m fakediscord.Message) bool { return len(m.Files) == 1 && strings.Contains(m.Text, "a blue bear") })
		require.Contains(t, bear.Text, "Seed 7")

		// The same by the menu of the message.
		used, err := bob.UseOn(bear.ID, "How it was made")
		require.NoError(t, err)
		require.NotEmpty(t, used)
		require.Equal(t, bob.ID, r.sees(bob, "what made the other", says("/generate\na blue bear")).Only)
		require.Equal(t, bob.ID, r.sees(bob, "its workflow", func(m fakediscord.Message) bool {
			return slices.Equal(m.Files, []string{"generate.json"}) && strings.Contains(string(m.Bytes[0]), "a blue bear")
		}).Only)
		used, err = bob.UseOn(bear.ID, "New words")
		require.NoError(t, err)
		form, err = bob.Form(r.ctx, used)
		require.NoError(t, err)
		require.Equal(t, "a blue bear", form.Fields[0].Value)
		_, err = bob.Submit(form, map[string]string{"prompt": "an owl"})
		require.NoError(t, err)
		owl := r.sees(ada, "a picture with these", func(m fakediscord.Message) bool { return len(m.Files) == 1 && strings.Contains(m.Text, "an owl") })
		r.until("nothing is left of the command", func() bool {
			return !slices.ContainsFunc(bob.Sees(), func(m fakediscord.Message) bool { return m.Thinking })
		})
		_, err = bob.UseOn(bear.ID, "Remove")
		require.NoError(t, err)
		sure := r.sees(bob, "the question", says("Remove this picture"))
		require.Equal(t, bob.ID, sure.Only)
		r.presses(bob, sure, "Yes")
		r.until("it goes", func() bool {
			return !slices.ContainsFunc(ada.Sees(), func(m fakediscord.Message) bool { return m.ID == bear.ID })
		})

		r.presses(ada, picture, "More")
		own := r.sees(ada, "what made it", says("Took "))
		r.presses(ada, own, "Remove")
		asking := r.sees(ada, "the question", says("Remove this picture"))
		require.Equal(t, own.ID, asking.ID)
		r.presses(ada, asking, "Yes")
		r.until("the picture goes, with what was said of it", func() bool {
			for _, m := range ada.Sees() {
				if m.ID != owl.ID && (len(m.Files) > 0 || strings.Contains(m.Text, "fox")) {
					return false
				}
			}
			return true
		})

		// What a command lacks is filled in, too.
		ada.Say("<@"+fakediscord.BotUser+"> /generate", "")
		question := r.sees(ada, "the question", says("What do you want to see"))
		press, err = ada.Press(question.ID, "Reply")
		require.NoError(t, err)
		form, err = ada.Form(r.ctx, press)
		require.NoError(t, err)
		_, err = ada.Submit(form, map[string]string{"prompt": "a hedgehog"})
		require.NoError(t, err)
		r.sees(ada, "its picture", func(m fakediscord.Message) bool { return len(m.Files) == 1 && strings.Contains(m.Text, "a hedgehog") })
	})
}

// opens is the address that a button opens.
func opens(t *testing.T, m fakediscord.Message, label string) string {
	t.Helper()
	at := slices.IndexFunc(m.Buttons, func(b fakediscord.Button) bool { return strings.Contains(b.Label, label) && b.URL != "" })
	require.GreaterOrEqual(t, at, 0, "%q under %+v", label, m)
	return m.Buttons[at].URL
}
