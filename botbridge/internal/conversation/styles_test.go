package conversation

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// styled gives the commands of a rig a style.
func (r *rig) styled() {
	for i, c := range r.talk.commands.list {
		c, _ = c.WithStyles([]workflow.Style{{Name: "film", Spec: workflow.StyleSpec{
			Prompt: "{prompt}, forbidden film", About: map[string]string{"en": "like a film"}, Arguments: map[string]string{"cfg": "4"},
		}}})
		r.talk.commands.list[i], r.talk.commands.byName[c.Name] = c, c
	}
}

func TestStylesInTheChat(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{Words: []string{"forbidden"}})
	id := r.pictured("5", "5")
	r.event("5", "5", platform.Said, "m", "/styles")
	posts, _ := r.sent()
	require.Contains(t, posts[0].Text, "no styles")
	r.tap("5", "5", request.VerbStyles, id)
	r.tap("5", "5", request.VerbStyle+"film", id)
	require.Empty(t, r.prompts("5"))

	r.styled()
	r.sent()
	r.event("5", "5", platform.Said, "m", "/styles")
	posts, _ = r.sent()
	require.Contains(t, posts[0].Text, "film - like a film (/generate)")
	r.answer("5", "5", "pic", "/styles")
	posts, _ = r.sent()
	want := []platform.Button{{Label: "film", Data: "y.film:" + id}}
	require.Equal(t, want, posts[0].Buttons[0])
	r.tap("5", "5", request.VerbStyles, id)
	_, edits := r.sent()
	require.Equal(t, want, edits[0].Buttons[0])

	// The same picture in the style: the operator's words are not refused, the user's are.
	rec, err := r.talk.o.Runner.Load(r.ctx, r.tap("5", "5", request.VerbStyle+"film", id))
	require.NoError(t, err)
	require.Equal(t, []string{"film"}, rec.Args.Styles)
	require.EqualValues(t, 7, rec.Args.Seed)
	require.Equal(t, "a fox", rec.Args.Prompt)
	r.event("5", "5", platform.Said, "m2", "/generate a forbidden fox --style film")
	r.event("5", "5", platform.Said, "m3", "/generate a red fox --style FILM")
	require.Equal(t, []string{"a fox", "a red fox"}, r.prompts("5"))
	posts, _ = r.sent()
	require.Contains(t, posts[len(posts)-2].Text, "I won't make that")
}

func TestRemix(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	id := r.pictured("5", "5")
	got := func(id string) request.Record {
		rec, err := r.talk.o.Runner.Load(r.ctx, id)
		require.NoError(t, err)
		return rec
	}
	rec := got(r.answer("5", "5", "pic", "/remix an owl --steps 9"))
	require.Equal(t, "an owl", rec.Args.Prompt)
	require.EqualValues(t, 7, rec.Args.Seed)
	require.Equal(t, 9, rec.Args.Steps)
	require.EqualValues(t, 8, got(r.answer("5", "5", "pic", "/remix an owl --seed 8")).Args.Seed)

	// The button asks for the words, and so does the command without any.
	r.sent()
	r.tap("5", "5", request.VerbRemix, id)
	r.answer("5", "5", "pic", "/remix")
	posts, _ := r.sent()
	require.Len(t, posts, 2)
	for _, post := range posts {
		require.Contains(t, post.Text, "“a fox”")
		require.True(t, post.Asks)
	}
	r.p.mu.Lock()
	asking := "b" + strconv.Itoa(r.p.n)
	r.p.mu.Unlock()
	rec = got(r.answer("5", "5", asking, "a hare"))
	require.Equal(t, "a hare", rec.Args.Prompt)
	require.EqualValues(t, 7, rec.Args.Seed)
	require.Equal(t, "generate", rec.Command)

	r.answer("6", "5", "pic", "/remix mine")
	require.Empty(t, r.prompts("6"), "nobody else sees that chat")
}
