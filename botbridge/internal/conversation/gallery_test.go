package conversation

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// painted stores a finished request with one picture.
func (r *rig) painted(user, chat, prompt string) string {
	r.t.Helper()
	rec := request.NewRecord(request.IDOf(user + chat + prompt))
	rec.Platform, rec.Chat, rec.User.ID, rec.Language, rec.Message = "telegram", platform.Chat{ID: chat, Group: chat[0] == '-'}, user, "en", "m"
	rec.Phase, rec.Outcome, rec.Command = request.Over, request.Done, "generate"
	rec.Args = workflow.Args{Prompt: prompt, Seed: 7}
	out := request.Output{State: request.Arrived, Media: platform.Photo, Message: "shown"}
	out.Ref.Filename, out.Ref.Type = "a.png", "output"
	rec.Outputs = []request.Output{out}
	_, err := r.store.Requests.Create(r.ctx, rec.ID, &rec, state.Ask{Who: rec.Tenant()})
	require.NoError(r.t, err)
	_, err = r.store.Requests.Finish(r.ctx, rec.ID, 1, &rec, state.End{Who: rec.Tenant(), Asked: rec.Asked})
	require.NoError(r.t, err)
	for now := time.Now().UnixMilli(); time.Now().UnixMilli() == now; { // by which they are ordered
	}
	return rec.ID
}

func TestMy(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{Messages: 1000})
	last := func(chat string) string {
		said := r.p.in(chat)
		return said[len(said)-1]
	}
	r.event("5", "5", platform.Said, "m1", "/my")
	require.Contains(t, last("5"), "Nothing here yet")
	for n := range 12 {
		r.painted("5", "5", fmt.Sprintf("a fox, number %d.", n))
	}
	there := r.painted("5", "-9", "a bear")
	others := r.painted("6", "6", "a fox of somebody else")
	r.event("5", "5", platform.Said, "m2", "/my")
	require.Contains(t, last("5"), "page 1 of 3")
	require.Contains(t, last("5"), "1. /generate a bear ·")
	require.Contains(t, last("5"), "2. /generate a fox, number 11. ·")
	require.NotContains(t, last("5"), "number 7.")
	require.NotContains(t, last("5"), "somebody else")
	r.event("5", "5", platform.Said, "m3", "/my FOX, number 3")
	require.Contains(t, last("5"), "1. /generate a fox, number 3. ·")
	require.NotContains(t, last("5"), "2. ")
	r.event("5", "5", platform.Said, "m4", "/my wolf")
	require.Contains(t, last("5"), "Nothing found for: wolf")
	r.event("5", "-9", platform.Said, "m5", "/my")
	require.Contains(t, last("-9"), "a bear")
	require.NotContains(t, last("-9"), "fox", "others read along")

	// Pages, favourites, and their buttons.
	tn := &turn{voice: r.talk.voice, Event: platform.Event{Platform: "telegram", User: platform.User{ID: "5"}, Chat: platform.Chat{ID: "5"}}, language: "en"}
	v := view{Who: "telegram:5"}
	id := request.IDOf("view")
	require.NoError(t, r.store.Put(t.Context(), myKind, id, v, 0))
	post, err := r.talk.gallery.page(t.Context(), tn, v, id, false, 3)
	require.NoError(t, err)
	require.Contains(t, post.Text, "11. /generate a fox, number 2.")
	require.Equal(t, "my:"+id+":p2", post.Buttons[1][0].Data)
	require.Equal(t, "my:"+id+":s1", post.Buttons[1][1].Data)
	require.Len(t, post.Buttons[1], 2, "there is no next page")
	for _, row := range post.Buttons {
		for _, b := range row {
			require.LessOrEqual(t, len(b.Data), 64)
		}
	}
	_, err = r.store.People.Toggle(t.Context(), "telegram:5", "star", state.Star{Request: others, Command: "generate", Words: "a fox of somebody else", Chat: "6"})
	require.NoError(t, err)
	post, err = r.talk.gallery.page(t.Context(), tn, v, id, true, 1)
	require.NoError(t, err)
	require.Contains(t, post.Text, "1. ★ /generate a fox of somebody else")
	require.Equal(t, "mg:"+others+":1", post.Buttons[0][0].Data)

	press := func(user, chat, data string) int {
		r.last++
		before := len(r.p.in(chat))
		require.NoError(t, r.talk.Handle(r.ctx, platform.Event{
			ID: fmt.Sprint("press", r.last), Platform: "telegram", Kind: platform.Pressed, Press: "p", Data: data, Message: platform.Message{ID: "list"},
			User: platform.User{ID: user, Language: "en"}, Chat: platform.Chat{ID: chat, Group: chat[0] == '-'},
		}))
		return len(r.p.in(chat)) - before
	}
	require.Equal(t, 1, press("5", "5", "mg:"+there+":0"), "also what was made in a group, if nobody reads along")
	require.Contains(t, last("5"), "a bear\nSeed 7")
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
	t.Parallel()
	r := newRig(t, limits.Config{})
	r.event("5", "5", platform.Said, "m1", "/models")
	require.Equal(t, []string{"None of the commands lets you choose a model."}, r.p.in("5"))
	for name, models := range map[string][]string{"paint": {"euler", "gone"}, "draw": nil} {
		c, err := workflow.NewCommand(name, workflow.Spec{Models: models, Inputs: map[workflow.Role]string{workflow.Model: "1.sampler_name"}},
			[]byte(`{"1": {"class_type": "Text", "inputs": {"sampler_name": "heun"}}}`))
		require.NoError(t, err)
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
