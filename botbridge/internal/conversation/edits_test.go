package conversation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
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
		"a typo in a flag":         {"/generate a fox", "/generate a fox --setps 3", "a fox", "There's no --setps"},
		"a typo in the command":    {"/generate a fox", "/genrate a red fox", "a fox", "I don't know that command"},
		"too many steps":           {"/generate a fox", "/generate a fox --steps 600", "a fox", "too many steps"},
		"forbidden words":          {"/generate a fox", "/generate a wolf", "a fox", "I won't make that"},
		"nothing left":             {"/generate a fox", "/generate", "a fox", "What do you want to see"},
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
	require.Contains(t, r.p.in("5")[1], "have 1 request waiting")
	r.event("5", "-9", platform.Said, "m3", "plain words in a group are not for us")
	r.event("5", "-9", platform.Edited, "m3", "neither are these")
	require.Equal(t, []string{"a fox"}, r.prompts("5"))
}

// A changed message is still about what it was about, whether its request waits at the hub
// or for a choice of words. Every event is handled twice, as after a kill.
func TestEditedAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before       func(r *rig, made string) // leads to the message
		said, edited string
		to           string // what the message answers
		files        []string
		want, again  string // the requests that it asks for
	}{
		"one of several pictures": {nil, "#2 in winter", "#1 at night", "both", nil, "edit in winter b.png of telegram:5", "edit at night a.png of telegram:5"},
		"words about one of them": {nil, "#2 in winter", "at night", "both", nil, "edit in winter b.png of telegram:5", "edit at night b.png of telegram:5"},
		"the number of a picture": {func(r *rig, _ string) {
			r.asks(r.message("5", "5", "in winter", "both"))
		}, "2", "1", "", nil, "edit in winter b.png of telegram:5", "edit in winter a.png of telegram:5"},
		"words for a photo": {func(r *rig, _ string) {
			r.asks(r.message("5", "5", "", "", "photo1"))
		}, "in winter", "at night", "", nil, "edit in winter photo1", "edit at night photo1"},
		"words behind flags": {func(r *rig, _ string) {
			r.asks(r.message("5", "5", "/generate --steps 3", ""))
		}, "a fox", "a bear", "", nil, "generate a fox", "generate a bear"},
		"a photo for words": {func(r *rig, _ string) {
			r.asks(r.message("5", "5", "/edit in winter", ""))
		}, "", "at night", "", []string{"photo1"}, "edit in winter photo1", "edit in winter at night photo1"},
		"words of a remix": {func(r *rig, made string) {
			r.tap("5", "5", request.VerbRemix, made)
		}, "a wolf", "a bear", "b1", nil, "generate a wolf", "generate a bear"},
	} {
		for _, choice := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, limits.Config{Messages: 1000})
				r.editing()
				made := r.pictured("5", "5")
				shown := request.Shown{Request: made, Outputs: []int{0, 1}}
				require.NoError(t, r.store.Put(t.Context(), request.PictureKind, request.MessageName("telegram", "5", "both"), shown, 0))
				if c.before != nil {
					c.before(r, made)
				}
				if choice {
					r.words(Enhance{})
					require.NoError(t, r.store.Put(t.Context(), settingsKind, "telegram:5", Settings{Better: true}, 0))
				}
				said := r.message("5", "5", c.said, c.to, c.files...)
				changed := r.message("5", "5", c.edited, c.to, c.files...)
				changed.Kind, changed.Message.ID = platform.Edited, said.Message.ID
				for _, step := range []struct {
					e    platform.Event
					want string
				}{{said, c.want}, {changed, c.again}} {
					for range 2 {
						r.restart()
						if got := r.asks(step.e); !choice {
							require.Equal(t, step.want, got, "%q", r.p.in("5"))
						}
					}
					id := request.IDOf(step.e.Key())
					if choice {
						r.press("5", "5", verbOwn, id)
						require.Equal(t, step.want, r.described(id), "%q", r.p.in("5"))
					}
					rec, err := r.talk.o.Runner.Load(r.ctx, id)
					require.NoError(t, err)
					switch name {
					case "words behind flags":
						require.Equal(t, 3, rec.Args.Steps)
					case "words of a remix":
						require.EqualValues(t, 7, rec.Args.Seed)
					}
				}
			})
		}
	}
}
