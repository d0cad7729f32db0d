package conversation

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// Whatever a command lacks is asked for, and the next message brings it. Every event is
// handled twice, as after a kill, and each time by a bridge that has just been started.
func TestQuestions(t *testing.T) {
	t.Parallel()
	type step struct {
		e    platform.Event
		want string // the request
		says string // contained in the last message
	}
	for name, steps := range map[string]func(r *rig) []step{
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, limits.Config{Messages: 1000})
			r.editing()
			for i, s := range steps(r) {
				for again := range 2 {
					o := r.options()
					o.Commands = append(o.Commands[:0:0], o.Commands...)
					r.talk = New(o)
					require.Equal(t, s.want, r.asks(s.e), "step %d, time %d: %q", i, again, r.p.in(s.e.Chat.ID))
					if s.says != "" {
						said := r.p.in(s.e.Chat.ID)
						require.Contains(t, said[len(said)-1], s.says)
					}
					if strings.HasPrefix(s.e.Message.Text, "/cancel") {
						break // said twice, it stops what else there is
					}
				}
			}
		})
	}
}

// A question of an older bridge is answered, and one that is older than ten minutes is not.
func TestOldQuestions(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
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
