package conversation

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// fill submits the form of a button, and returns the id of what that may ask for.
func (r *rig) fill(user, chat, verb, id string, filled map[string]string) string {
	r.t.Helper()
	r.last++
	e := platform.Event{
		ID: "form" + strconv.Itoa(r.last), Platform: "telegram", Kind: platform.Pressed, Press: "p", Data: request.ButtonData(verb, id), Filled: filled,
		User: platform.User{ID: user, Language: "en"}, Chat: platform.Chat{ID: chat, Group: chat[0] == '-'}, Message: platform.Message{ID: "under"},
	}
	for range 2 { // the bridge may end while it is handled
		require.NoError(r.t, r.talk.Handle(r.ctx, e))
	}
	return request.IDOf(e.Key())
}

// opened is the form that a button opens.
func (r *rig) opened(ctx context.Context, user, chat, verb, id, under string) *platform.Form {
	return r.talk.Form(ctx, platform.Event{
		ID: "press", Platform: "telegram", Kind: platform.Pressed, Press: "p", Data: request.ButtonData(verb, id),
		User: platform.User{ID: user, Language: "en"}, Chat: platform.Chat{ID: chat}, Message: platform.Message{ID: under},
	})
}

// Where a platform has forms, new words begin with those there are. Nobody sees in a form
// what they could not read otherwise.
func TestFormForNewWords(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{BlockUsers: []string{"telegram:8"}})
	both, err := workflow.NewCommand("both", workflow.Spec{}, []byte(`{"1": {"class_type": "Text", "inputs": {"text": "x"}, "_meta": {"title": "prompt"}},
		"2": {"class_type": "Text", "inputs": {"text": "y"}, "_meta": {"title": "negative"}}}`))
	require.NoError(t, err)
	r.talk.commands.byName["both"] = both
	alone, group := r.pictured("5", "5"), r.pictured("7", "-9")
	want := &platform.Form{Title: "✏️ New words", Data: "rx:" + alone, Fields: []platform.Field{
		{Name: "prompt", Label: "What you want to see", Value: "a fox", Long: true, Required: true},
	}}
	require.Equal(t, want, r.opened(r.ctx, "5", "5", request.VerbRemix, alone, "under"))
	require.NotNil(t, r.opened(r.ctx, "6", "-9", request.VerbRemix, group, "under"), "a group reads along")
	for name, c := range map[string][4]string{
		"somebody else's":    {"6", "5", alone, "under"},
		"another chat":       {"5", "6", alone, "under"},
		"another's message":  {"7", "-9", request.IDOf("other"), "pic"},
		"nobody's":           {"5", "5", request.IDOf("other"), "under"},
		"no id":              {"5", "5", "x", "under"},
		"under another's":    {"5", "5", r.made("inpaint", "5", "5"), "pic"},
		"a blocked user":     {"8", "-9", group, "under"},
		"it takes no prompt": {"7", "7", r.made("inpaint", "7", "7"), "under"},
	} {
		require.Nil(t, r.opened(r.ctx, c[0], c[1], request.VerbRemix, c[2], c[3]), name)
	}
	require.Nil(t, r.opened(r.ctx, "5", "5", request.VerbMore, alone, "under"))
	said := platform.Event{
		ID: "said", Platform: "telegram", Kind: platform.Said, User: platform.User{ID: "5", Language: "en"}, Chat: platform.Chat{ID: "5"},
		Message: platform.Message{ID: "m", Text: "/remix", ReplyTo: &platform.Message{ID: "pic"}},
	}
	require.Equal(t, want, r.talk.Form(r.ctx, said), "used on the picture")
	for _, text := range []string{"/remix a bear", "/info", "a bear"} {
		said.Message.Text = text
		require.Nil(t, r.talk.Form(r.ctx, said), text)
	}
	said.Message.Text, said.Message.ReplyTo = "/remix", &platform.Message{ID: "something else"}
	require.Nil(t, r.talk.Form(r.ctx, said))

	late, cancel := context.WithCancel(r.ctx)
	cancel()
	want.Fields[0].Value = ""
	require.Equal(t, want, r.opened(late, "5", "5", request.VerbRemix, alone, "under"), "the store does not answer in time")

	rec := request.Record{}
	version, err := r.store.Requests.Load(r.ctx, alone, &rec)
	require.NoError(t, err)
	rec.Command, rec.Args.Negative = "both", "rain"
	_, err = r.store.Requests.Save(r.ctx, alone, version, &rec)
	require.NoError(t, err)
	require.Equal(t, platform.Field{Name: "negative", Label: "What to leave out", Value: "rain", Long: true},
		r.opened(r.ctx, "5", "5", request.VerbRemix, alone, "under").Fields[1])
}

// What was filled in makes one picture, with the same seed.
func TestNewWordsFilledIn(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	id := r.pictured("5", "5")
	rec, err := r.talk.o.Runner.Load(r.ctx, r.fill("5", "5", request.VerbRemix, id, map[string]string{"prompt": " a bear\nin the snow --steps 9"}))
	require.NoError(t, err)
	require.Equal(t, "a bear in the snow", rec.Args.Prompt)
	require.Equal(t, []any{9, uint64(7), "m"}, []any{rec.Args.Steps, rec.Args.Seed, rec.Message})
	require.Equal(t, []string{"a bear in the snow"}, r.prompts("5"))
	r.sent()
	r.fill("5", "5", request.VerbRemix, id, map[string]string{"prompt": "a bear --setps 9"})
	posts, _ := r.sent()
	require.Contains(t, posts[0].Text, "Did you mean --steps")
	require.True(t, posts[0].Private && posts[0].Press == "p", "nobody else is told")
	r.fill("6", "5", request.VerbRemix, id, map[string]string{"prompt": "mine"})
	require.Empty(t, r.prompts("6"), "forged")
	r.fill("5", "5", request.VerbRemix, id, map[string]string{"prompt": " "})
	posts, _ = r.sent()
	require.True(t, posts[0].Asks, "what came empty is asked for")
}

// An emptied field is empty.
func TestNegativeFilledIn(t *testing.T) {
	t.Parallel()
	tn := &turn{Event: platform.Event{Filled: map[string]string{"prompt": "a bear ", "negative": ""}}}
	args, err := filledWords(tn, workflow.Args{Prompt: "a fox", Negative: "rain", Steps: 3})
	require.NoError(t, err)
	require.Equal(t, workflow.Args{Prompt: "a bear", Steps: 3}, args)
}

// Offered words can be changed where there are forms, by their author, once.
func TestOfferedWordsChanged(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{Words: []string{"wolf"}})
	r.p.forms = true
	r.words(Enhance{})
	r.event("5", "5", platform.Said, "m1", "/generate a fox --enhance --steps 7")
	id := r.offered()
	posts, _ := r.sent()
	require.Equal(t, request.ButtonData(verbEdit, id), posts[0].Buttons[0][2].Data)
	form := r.opened(r.ctx, "5", "5", verbEdit, id, "question")
	require.Equal(t, "A FOX", form.Fields[0].Value)
	require.Nil(t, r.opened(r.ctx, "6", "5", verbEdit, id, "question"))
	r.press("5", "5", verbEdit, id)
	r.fill("6", "5", verbEdit, id, map[string]string{"prompt": "mine"})
	r.fill("5", "5", verbEdit, id, map[string]string{"prompt": "a wolf"})
	require.Empty(t, r.prompts("5"))
	r.fill("5", "5", verbEdit, id, map[string]string{"prompt": "a bear --steps 99"})
	require.Equal(t, []string{"a bear --steps 99"}, r.prompts("5"), "words are words")
	_, edits := r.sent()
	require.Contains(t, edits[len(edits)-1].Text, "As you put it:\n\na bear --steps 99")
	require.Nil(t, r.opened(r.ctx, "5", "5", verbEdit, id, "question"), "it is over")
}
