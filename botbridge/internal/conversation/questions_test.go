package conversation

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// Whatever a command lacks is asked for, and the next message brings it. Every event is
// handled twice, as after a kill, and each time by a bridge that has just been started.
func TestQuestions(t *testing.T) {
	type step struct {
		e    platform.Event
		want string // the request
		says string // contained in the last message
	}
	beside.Cases(t, map[string]func(r *rig) []step{
		"a picture": func(r *rig) []step {
			return []step{
				{r.message("5", "5", "/edit in winter", ""), "", "/edit needs a picture"},
				{r.message("5", "5", "", "", "photo1"), "edit in winter photo1", ""},
				{r.message("5", "5", "a fox", ""), "generate a fox", ""},
			}
		},
		"a picture with more words": func(r *rig) []step {
			return []step{
				{r.message("5", "5", "/edit in winter", ""), "", "needs a picture"},
				{r.message("5", "5", "at night", "", "photo1"), "edit in winter at night photo1", ""},
			}
		},
		"a mistake that no answer mends": func(r *rig) []step {
			return []step{
				{r.message("5", "5", "/edit --no snow", ""), "", "can't leave things out"},
				{r.message("5", "5", "a fox", ""), "generate a fox", ""},
			}
		},
		"words, then a picture": func(r *rig) []step {
			return []step{
				{r.message("5", "5", "/edit", ""), "", "needs a picture"},
				{r.message("5", "5", "in winter", ""), "", "needs a picture"},
				{r.message("5", "5", "", "", "photo1"), "edit in winter photo1", ""},
			}
		},
		"something else": func(r *rig) []step {
			return []step{
				{r.message("5", "5", "/edit in winter", ""), "", "needs a picture"},
				{r.message("5", "5", "a fox", ""), "generate a fox", ""},
				{r.message("5", "5", "a bear", ""), "generate a bear", ""},
			}
		},
		"a picture and its mask": func(r *rig) []step {
			return []step{
				{r.message("5", "5", "/inpaint", ""), "", "/inpaint needs a picture"},
				{r.message("5", "5", "", "", "photo1"), "", "Now send the mask"},
				{r.message("5", "5", "", "", "photo2"), "inpaint  photo1 photo2", ""},
			}
		},
		"words": func(r *rig) []step {
			return []step{
				{r.message("5", "5", "/generate --steps 9", ""), "", "What do you want to see"},
				{r.message("5", "5", "a fox", ""), "generate a fox", ""},
			}
		},
		"a mistake in the answer": func(r *rig) []step {
			return []step{
				{r.message("5", "5", "/generate", ""), "", "What do you want to see"},
				{r.message("5", "5", "a fox --steps 900", ""), "", "too many steps"},
				{r.message("5", "5", "a fox --steps 9", ""), "generate a fox", ""},
			}
		},
		"words for a picture": func(r *rig) []step {
			return []step{
				{r.message("5", "5", "", "", "photo1"), "", "What should I change"},
				{r.message("5", "5", "in winter", ""), "edit in winter photo1", ""},
			}
		},
		"an answer that is changed": func(r *rig) []step {
			r.talk.commands.plain = "" // only the question tells what the words are for
			answer := r.message("5", "5", "a fox", "")
			changed := r.message("5", "5", "a bear", "")
			changed.Kind, changed.Message.ID = platform.Edited, answer.Message.ID
			return []step{
				{r.message("5", "5", "/generate", ""), "", "What do you want to see"},
				{answer, "generate a fox", ""},
				{changed, "generate a bear", ""},
			}
		},
		"cancelled": func(r *rig) []step {
			return []step{
				{r.message("5", "5", "/edit in winter", ""), "", "needs a picture"},
				{r.message("5", "5", "/cancel", ""), "", "never mind"},
				{r.message("5", "5", "a fox", ""), "generate a fox", ""},
			}
		},
		"another command": func(r *rig) []step {
			return []step{
				{r.message("5", "5", "/edit in winter", ""), "", "needs a picture"},
				{r.message("5", "5", "/generate a fox", ""), "generate a fox", ""},
				{r.message("5", "5", "in summer", "", "photo2"), "edit in summer photo2", ""},
			}
		},
		"somebody else, somewhere else": func(r *rig) []step {
			return []step{
				{r.message("5", "5", "/edit in winter", ""), "", "needs a picture"},
				{r.message("6", "6", "", "", "photo2"), "", "What should I change"},
				{r.message("5", "5", "", "", "photo1"), "edit in winter photo1", ""},
			}
		},
		"a group": func(r *rig) []step {
			return []step{
				{r.message("5", "-9", "/edit in winter", ""), "", "reply to this message"},
				{r.message("5", "-9", "lunch?", "", "photo3"), "", ""},
				{r.message("6", "-9", "", "b2", "photo2"), "", ""},
				{r.message("5", "-9", "", "b2", "photo1"), "edit in winter photo1", ""},
			}
		},
	}, func(t *testing.T, steps func(r *rig) []step) {
		r := newRig(t, limits.Config{Messages: 1000})
		r.editing()
		for i, s := range steps(r) {
			for again := range 2 {
				o := r.options()
				o.Commands = append(o.Commands[:0:0], o.Commands...)
				r.talk = New(o)
				require.Equal(t, s.want, r.asks(s.e), "step %d, time %d: %q", i, again, r.p.in(s.e.Chat.ID))
				if s.says != "" {
					require.Contains(t, r.heard(s.e.Chat.ID), s.says)
				}
				if strings.HasPrefix(s.e.Message.Text, "/cancel") {
					break // said twice, it stops what else there is
				}
			}
		}
	})
}

// A question of an older bridge is answered, and one that is older than ten minutes is not.
func TestOldQuestions(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	r.editing()
	q := question{Command: "edit", Rest: "in winter", Needs: needsPicture, By: "telegram/1"}
	require.NoError(t, r.store.Put(t.Context(), questionKind, "telegram/5//5", q, questionKeep))
	require.Equal(t, "edit in winter photo1", r.asks(r.message("5", "5", "", "", "photo1")))
	require.Empty(t, r.asks(r.message("5", "5", "", "", "photo2")), "it is answered")

	e := r.message("6", "6", "", "", "photo1")
	q.At = time.Now().Add(-questionKeep - time.Second)
	require.NoError(t, r.store.People.Hold(t.Context(), "telegram:6", questionID(&turn{Event: e}), q))
	require.Empty(t, r.asks(e))
	require.Contains(t, r.p.in("6")[0], "What should I change")
}

// What is asked in words can be filled in where there are forms, by whoever was asked.
func TestAnswerFilledIn(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	r.p.forms = true
	r.event("5", "-9", platform.Said, "m1", "/generate --steps 9")
	posts, _ := r.sent()
	require.Len(t, posts, 1)
	require.Equal(t, "✏️ Reply", posts[0].Buttons[0][0].Label)
	verb, id := verbAnswer, posts[0].Buttons[0][0].Data[len(verbAnswer)+1:]
	want := &platform.Form{Title: "✏️ Reply", Data: request.ButtonData(verb, id), Fields: []platform.Field{
		{Name: "prompt", Label: "What you want to see", Long: true, Required: true},
	}}
	require.Equal(t, want, r.opened(r.ctx, "5", "-9", verb, id, "b1"))
	require.Nil(t, r.opened(r.ctx, "6", "-9", verb, id, "b1"), "nobody asked them")
	require.Nil(t, r.opened(r.ctx, "5", "-9", verb, request.IDOf("other"), "b1"))
	r.fill("6", "-9", verb, id, map[string]string{"prompt": "mine"})
	r.fill("5", "-9", verb, id, map[string]string{"prompt": " "})
	require.Empty(t, append(r.prompts("5"), r.prompts("6")...))
	made := r.fill("5", "-9", verb, id, map[string]string{"prompt": "a fox"})
	require.Equal(t, 9, r.record(made).Args.Steps)
	require.Equal(t, []string{"a fox"}, r.prompts("5"))
	r.fill("5", "-9", verb, id, map[string]string{"prompt": "a bear"})
	require.Equal(t, []string{"a fox"}, r.prompts("5"), "a question is answered once")
	require.Nil(t, r.opened(r.ctx, "5", "-9", verb, id, "b1"))

	r.sent()
	r.event("5", "-9", platform.Said, "m2", "/inpaint")
	posts, _ = r.sent()
	require.Empty(t, posts[0].Buttons, "a picture cannot be filled in")
}

func TestEditedMessages(t *testing.T) {
	type row struct {
		said, edited string
		want         string
		answer       string // contained in the last message
	}
	beside.Cases(t, map[string]row{
		"a command":                {"/generate a fox", "/generate a red fox", "a red fox", ""},
		"plain words":              {"a fox", "a red fox", "a red fox", ""},
		"words into a command":     {"a fox", "/generate a red fox", "a red fox", ""},
		"a typo in a flag":         {"/generate a fox", "/generate a fox --setps 3", "a fox", "There's no --setps"},
		"a typo in the command":    {"/generate a fox", "/genrate a red fox", "a fox", "I don't know that command"},
		"too many steps":           {"/generate a fox", "/generate a fox --steps 600", "a fox", "too many steps"},
		"forbidden words":          {"/generate a fox", "/generate a wolf", "a fox", "I won't make that"},
		"nothing left":             {"/generate a fox", "/generate", "a fox", "What do you want to see"},
		"only a preview of a link": {"/generate a fox", "/generate a fox", "a fox", ""},
	}, func(t *testing.T, c row) {
		// The new request fits only in the place of the old one.
		r := newRig(t, limits.Config{Waiting: 1, Pictures: 1, Words: []string{"wolf"}})
		r.event("5", "5", platform.Said, "m1", c.said)
		r.event("5", "5", platform.Edited, "m1", c.edited)
		require.Eventually(t, func() bool {
			list := r.prompts("5")
			return len(list) == 1 && list[0] == c.want
		}, time.Minute, 5*time.Millisecond, "%v; %q", r.prompts("5"), r.p.in("5"))
		require.Contains(t, r.heard("5"), c.answer)
	})
}

func TestEditTakesAnothersPlaceOnlyOnce(t *testing.T) {
	r := parallelRig(t, limits.Config{Waiting: 1})
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
					rec := r.record(id)
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
