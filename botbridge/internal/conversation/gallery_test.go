package conversation

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// painted stores a finished request with one picture.
func (r *rig) painted(user, chat, prompt string, change ...func(*request.Record)) string {
	r.t.Helper()
	rec := request.NewRecord(request.IDOf(user + chat + prompt))
	rec.Platform, rec.Chat, rec.User.ID, rec.Language, rec.Message = "telegram", platform.Chat{ID: chat, Group: chat[0] == '-'}, user, "en", "m"
	rec.Phase, rec.Outcome, rec.Command = request.Over, request.Done, "generate"
	rec.Args = workflow.Args{Prompt: prompt, Seed: 7}
	out := request.Output{State: request.Arrived, Media: platform.Photo, Message: "shown"}
	out.Ref.Filename, out.Ref.Type = "a.png", "output"
	rec.Outputs = []request.Output{out}
	for _, c := range change {
		c(&rec)
	}
	must.Get(r.store.Requests.Create(r.ctx, rec.ID, &rec, state.Ask{Who: rec.Tenant()}))(r.t)
	must.Get(r.store.Requests.Finish(r.ctx, rec.ID, 1, &rec, state.End{Who: rec.Tenant(), Asked: rec.Asked}))(r.t)
	for now := time.Now().UnixMilli(); time.Now().UnixMilli() == now; { // by which they are ordered
	}
	return rec.ID
}

func TestMy(t *testing.T) {
	r := parallelRig(t, limits.Config{Messages: 1000})
	r.event("5", "5", platform.Said, "m1", "/my")
	require.Contains(t, r.heard("5"), "Nothing here yet")
	for n := range 12 {
		r.painted("5", "5", fmt.Sprintf("a fox, number %d.", n))
	}
	there := r.painted("5", "-9", "a bear")
	others := r.painted("6", "6", "a fox of somebody else")
	r.event("5", "5", platform.Said, "m2", "/my")
	require.Contains(t, r.heard("5"), "Page 1 of 3")
	require.Contains(t, r.heard("5"), "1. /generate a bear ·")
	require.Contains(t, r.heard("5"), "2. /generate a fox, number 11. ·")
	require.NotContains(t, r.heard("5"), "number 7.")
	require.NotContains(t, r.heard("5"), "somebody else")
	r.event("5", "5", platform.Said, "m3", "/my FOX, number 3")
	require.Contains(t, r.heard("5"), "What I found for “FOX, number 3”. Press a number to get one again.\n\n1. /generate a fox, number 3. ·")
	require.NotContains(t, r.heard("5"), "Page", "there is one")
	require.NotContains(t, r.heard("5"), "2. ")
	r.event("5", "5", platform.Said, "m4", "/my wolf")
	require.Contains(t, r.heard("5"), "Nothing found for: wolf")
	r.event("5", "-9", platform.Said, "m5", "/my")
	require.Contains(t, r.heard("-9"), "a bear")
	require.NotContains(t, r.heard("-9"), "fox", "others read along")

	// Pages, favourites, and their buttons.
	tn := &turn{voice: r.talk.voice, Event: platform.Event{Platform: "telegram", User: platform.User{ID: "5"}, Chat: platform.Chat{ID: "5"}}, language: "en"}
	v := view{Who: "telegram:5"}
	id := request.IDOf("view")
	require.NoError(t, r.store.Put(t.Context(), myKind, id, v, 0))
	post := must.Get(r.talk.gallery.page(t.Context(), tn, v, id, false, 3))(t)
	require.Contains(t, post.Text, "11. /generate a fox, number 2.")
	require.Equal(t, "my:"+id+":p2", post.Buttons[1][0].Data)
	require.Equal(t, "my:"+id+":s1", post.Buttons[1][1].Data)
	require.Len(t, post.Buttons[1], 2, "there is no next page")
	for _, row := range post.Buttons {
		for _, b := range row {
			require.LessOrEqual(t, len(b.Data), 64)
		}
	}
	must.Get(r.store.People.Toggle(t.Context(), "telegram:5", "star", state.Star{Request: others, Command: "generate", Words: "a fox of somebody else", Chat: "6"}))(t)
	post = must.Get(r.talk.gallery.page(t.Context(), tn, v, id, true, 1))(t)
	require.Contains(t, post.Text, "1. ★ /generate a fox of somebody else")
	require.Equal(t, "mg:"+others+":1", post.Buttons[0][0].Data)

	press := func(user, chat, data string) int {
		before := len(r.p.in(chat))
		r.pressed(user, chat, "list", data)
		return len(r.p.in(chat)) - before
	}
	require.Equal(t, 1, press("5", "5", "mg:"+there+":0"), "also what was made in a group, if nobody reads along")
	require.Contains(t, r.heard("5"), "a bear\nSeed 7")
	require.Equal(t, 1, press("5", "5", "mg:"+others+":1"), "a favourite")
	var shown request.Shown
	require.NoError(t, r.store.Get(t.Context(), request.PictureKind, request.MessageName("telegram", "5", fmt.Sprint("b", r.p.n)), &shown))
	require.Equal(t, others, shown.Request, "an answer to it changes it")
	for _, forged := range []string{"mg:" + others + ":0", "mg:" + there + ":2", "mg:" + there + ":-1", "mg:" + there, "mg:x:1", "mg::", "my::p1", "my:" + id, "my:" + id + ":p", "my:" + id + ":x1"} {
		require.Zero(t, press("5", "5", forged), forged)
	}
	require.Zero(t, press("6", "6", "mg:"+there+":0"), "not theirs")
	require.Zero(t, press("5", "-8", "mg:"+there+":0"), "of another group")
	require.Zero(t, press("6", "6", "my:"+id+":p1"))
}

func TestModels(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	r.event("5", "5", platform.Said, "m1", "/models")
	require.Equal(t, []string{"None of the commands lets you choose a model."}, r.p.in("5"))
	for name, models := range map[string][]string{"paint": {"euler", "gone"}, "draw": nil} {
		c := must.Get(workflow.NewCommand(name, workflow.Spec{Models: models, Inputs: map[workflow.Role]string{workflow.Model: "1.sampler_name"}},
			[]byte(`{"1": {"class_type": "Text", "inputs": {"sampler_name": "heun"}}}`)))(t)
		r.talk.commands.list = append(r.talk.commands.list, c)
	}
	r.event("5", "5", platform.Said, "m2", "/models")
	said := r.p.in("5")[1]
	require.Contains(t, said, "/paint --model: heun (default), euler, gone (not available right now)")
	require.Contains(t, said, "/draw: always heun")
	r.away.Store(true)
	r.talk.handbook.catalogs = newCatalogs(r.talk.o.Hub)
	r.event("5", "5", platform.Said, "m3", "/models")
	require.True(t, strings.HasSuffix(r.p.in("5")[2], "which of these the image servers have."))
}

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
	r := parallelRig(t, limits.Config{BlockUsers: []string{"telegram:8"}})
	both := must.Get(workflow.NewCommand("both", workflow.Spec{}, []byte(`{"1": {"class_type": "Text", "inputs": {"text": "x"}, "_meta": {"title": "prompt"}},
		"2": {"class_type": "Text", "inputs": {"text": "y"}, "_meta": {"title": "negative"}}}`)))(t)
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
	version := must.Get(r.store.Requests.Load(r.ctx, alone, &rec))(t)
	rec.Command, rec.Args.Negative = "both", "rain"
	must.Get(r.store.Requests.Save(r.ctx, alone, version, &rec))(t)
	require.Equal(t, platform.Field{Name: "negative", Label: "What to leave out", Value: "rain", Long: true},
		r.opened(r.ctx, "5", "5", request.VerbRemix, alone, "under").Fields[1])
}

// What was filled in makes one picture, with the same seed.
func TestNewWordsFilledIn(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	id := r.pictured("5", "5")
	rec := r.record(r.fill("5", "5", request.VerbRemix, id, map[string]string{"prompt": " a bear\nin the snow --steps 9"}))
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
	args := must.Get(filledWords(tn, workflow.Args{Prompt: "a fox", Negative: "rain", Steps: 3}))(t)
	require.Equal(t, workflow.Args{Prompt: "a bear", Steps: 3}, args)
}

// Offered words can be changed where there are forms, by their author, once.
func TestOfferedWordsChanged(t *testing.T) {
	r := parallelRig(t, limits.Config{Words: []string{"wolf"}})
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

func TestDelete(t *testing.T) {
	type row struct {
		user, chat string
		stuck      bool
		goes       bool
	}
	beside.Cases(t, map[string]row{
		"whoever asked for it":    {"5", "-9", false, true},
		"somebody else":           {"6", "-9", false, false},
		"who keeps order there":   {"9", "-9", false, true},
		"the operator":            {"1", "-9", false, true},
		"in a private chat":       {"5", "5", false, true},
		"too old to be removed":   {"5", "5", true, true},
		"another's private chat":  {"6", "5", false, false},
		"the operator in private": {"1", "5", false, false},
	}, func(t *testing.T, c row) {
		r := newRig(t, limits.Config{Admins: []string{"telegram:1"}})
		id := r.pictured("5", c.chat)
		must.Get(r.store.People.Toggle(r.ctx, "telegram:7", "e", state.Star{Request: id}))(t)
		if c.stuck {
			r.p.stuck = map[string]bool{"pic": true}
		}
		r.tap(c.user, c.chat, request.VerbDelete, id)
		_, edits := r.sent()
		require.Len(t, edits, map[bool]int{true: 1}[c.goes], "it asks once more")
		_, err := r.talk.o.Runner.Load(r.ctx, id)
		require.NoError(t, err, "nothing is gone yet")
		r.tap(c.user, c.chat, request.VerbDeleteNow, id)
		_, edits = r.sent()
		_, err = r.talk.o.Runner.Load(r.ctx, id)
		stars, starErr := r.store.People.Stars(r.ctx, "telegram:7", "")
		require.NoError(t, starErr)
		if !c.goes {
			require.NoError(t, err)
			require.Empty(t, r.p.gone)
			require.Len(t, stars, 1)
			return
		}
		require.ErrorIs(t, err, state.ErrNotFound)
		require.Empty(t, stars)
		if c.stuck {
			require.Contains(t, edits[0].Text, "1 of 1 message.")
			return
		}
		require.Equal(t, []string{"pic", "under"}, r.p.gone, "the picture once, and the question")
		require.Empty(t, edits)
	})
}

// What was said about a picture goes with it.
func TestDeleteWhatWasSaid(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	id := r.pictured("5", "5")
	r.tap("5", "5", request.VerbMore, id)     // b1
	r.tap("5", "5", request.VerbWorkflow, id) // b2
	r.tap("5", "5", request.VerbRemix, id)    // b3
	rec := r.record(id)
	require.Equal(t, []string{"b1", "b2", "b3"}, rec.Copies)
	r.tap("5", "5", request.VerbDeleteNow, id)
	require.Equal(t, []string{"pic", "b1", "b2", "b3", "under"}, r.p.gone)
	for n := range 60 {
		require.NoError(t, r.talk.o.Runner.NoteCopies(r.ctx, id, "gone"), n)
	}
	other := r.made("generate", "6", "6")
	for range 60 {
		require.NoError(t, r.talk.o.Runner.NoteCopies(r.ctx, other, "c"))
	}
	rec = r.record(other)
	require.Len(t, rec.Copies, 50)
}

// Nobody loses a picture that is still being made, and a reply works like the button.
func TestDeleteByCommand(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	r.event("5", "5", "said", "m1", "/generate a fox")
	r.answer("5", "5", "m1", "/delete")
	posts, _ := r.sent()
	require.Contains(t, posts[len(posts)-1].Text, "isn't finished yet")
	id := r.pictured("5", "5")
	r.answer("6", "5", "pic", "/delete")
	r.answer("5", "5", "pic", "/delete")
	posts, _ = r.sent()
	require.Contains(t, posts[0].Text, "Reply to one of my pictures")
	require.Contains(t, posts[1].Text, "Remove this picture")
	require.Equal(t, request.ButtonData(request.VerbDeleteNow, id), posts[1].Buttons[0][0].Data)
}
