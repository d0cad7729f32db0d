package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/fakediscord"
)

// The menu of a picture on Discord is for whoever opened it, and is one message.
func TestDiscordMenu(t *testing.T) {
	t.Parallel()
	r := newDiscordRig(t, fakediscord.Options{})
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
	r.sees(bob, "a refusal", says("not yours"))

	r.presses(bob, menu, "New words")
	question := r.sees(bob, "the question", says("new words"))
	require.Empty(t, question.Only, "it is to be answered")

	r.presses(ada, picture, "More")
	own := r.sees(ada, "what made it", says("Took "))
	r.presses(ada, own, "Remove")
	asking := r.sees(ada, "the question", says("Remove this picture"))
	require.Equal(t, own.ID, asking.ID)
	r.presses(ada, asking, "Yes")
	r.until("the picture goes, with what was said of it", func() bool {
		for _, m := range ada.Sees() {
			if len(m.Files) > 0 || strings.Contains(m.Text, "fox") {
				return false
			}
		}
		return true
	})
}
