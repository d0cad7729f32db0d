package conversation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

func TestEditedMessages(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		said, edited string
		want         string
		answer       string // contained in the last message
	}{
		"a command":                {"/generate a fox", "/generate a red fox", "a red fox", ""},
		"plain words":              {"a fox", "a red fox", "a red fox", ""},
		"words into a command":     {"a fox", "/generate a red fox", "a red fox", ""},
		"a typo in a flag":         {"/generate a fox", "/generate a fox --setps 3", "a fox", "I do not know --setps"},
		"a typo in the command":    {"/generate a fox", "/genrate a red fox", "a fox", "I do not know that command"},
		"too many steps":           {"/generate a fox", "/generate a fox --steps 600", "a fox", "too many steps"},
		"forbidden words":          {"/generate a fox", "/generate a wolf", "a fox", "I do not make that"},
		"nothing left":             {"/generate a fox", "/generate", "a fox", "Say what you want"},
		"only a preview of a link": {"/generate a fox", "/generate a fox", "a fox", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The new request fits only in the place of the old one.
			r := newRig(t, limits.Config{Waiting: 1, Pictures: 1, Words: []string{"wolf"}})
			r.event("5", "5", platform.Said, "m1", c.said)
			r.event("5", "5", platform.Edited, "m1", c.edited)
			require.Eventually(t, func() bool {
				list := r.prompts("5")
				return len(list) == 1 && list[0] == c.want
			}, time.Minute, 5*time.Millisecond, "%v; %q", r.prompts("5"), r.p.in("5"))
			said := r.p.in("5")
			require.Contains(t, said[len(said)-1], c.answer)
		})
	}
}

func TestEditTakesAnothersPlaceOnlyOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{Waiting: 1})
	r.event("5", "5", platform.Said, "m1", "a fox")
	r.event("5", "5", platform.Said, "m2", "a bear")
	require.Contains(t, r.p.in("5")[1], "waiting for 1 already")
	r.event("5", "-9", platform.Said, "m3", "plain words in a group are not for us")
	r.event("5", "-9", platform.Edited, "m3", "neither are these")
	require.Equal(t, []string{"a fox"}, r.prompts("5"))
}
