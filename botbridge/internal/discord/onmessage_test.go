package discord

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakediscord"
)

// onMessages adds commands for messages. One has a form if asked so.
func onMessages(form bool) func(*Options) {
	return func(o *Options) {
		o.Commands = append(o.Commands,
			Command{Name: "info", OnMessage: true, Private: true, About: map[string]string{"": "How it was made", "ru": "Как это сделано"}},
			Command{Name: "generate", OnMessage: true, About: map[string]string{"": "New words"}},
		)
		if form {
			o.Form = func(_ context.Context, e platform.Event) *platform.Form {
				if e.Message.Text != "/generate" || e.Message.ReplyTo == nil {
					return nil
				}
				return &platform.Form{Title: "New words", Data: "rx:" + e.Message.ReplyTo.ID, Fields: []platform.Field{words("a fox")}}
			}
		}
	}
}

// registered waits until the commands are registered.
func (r *rig) registered() {
	r.t.Helper()
	require.Eventually(r.t, func() bool { list, _ := r.fake.Commands(); return len(list) > 0 }, patience, 1e6)
}

// A command on a message is an answer to that message, and what it says is for one person,
// all of it.
func TestOnMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakediscord.Options{}, onMessages(false))
	p := r.fake.Person(ada, channel, guild, "ru")
	r.registered()
	list, _ := r.fake.Commands()
	at := slices.IndexFunc(list, func(c map[string]any) bool { return c["name"] == "How it was made" })
	require.Equal(t, map[string]any{"ru": "Как это сделано"}, list[at]["name_localizations"])
	r.stop()
	r.start()
	require.Eventually(t, func() bool { return r.fake.Calls("GET /applications/{application_id}/commands") == 2 }, patience, 1e6)

	message := r.posted()
	_, err := p.UseOn(message, "How it was made")
	require.NoError(t, err)
	e := r.event(0)
	require.Equal(t, []any{platform.Said, "/info", message, "a fox"}, []any{e.Kind, e.Message.Text, e.Message.ReplyTo.ID, e.Message.ReplyTo.Text})
	for _, text := range []string{"seed 7", "the workflow"} {
		_, err := r.d.Send(r.ctx, e.Chat, platform.Post{ID: text, Text: text, ReplyTo: e.Message.ID, Private: true})
		require.NoError(t, err)
		require.Equal(t, ada, r.sees(p, text, saying(text)).Only)
	}
	require.Len(t, p.Sees(), 3, "nothing is left that says thinking")
	_, err = p.UseOn(message, "New words")
	require.NoError(t, err)
	require.Equal(t, "/generate", r.event(1).Message.Text)
	require.Len(t, p.Sees(), 4, "and here others may answer")
	_, replaced := r.fake.Commands()
	require.Equal(t, 1, replaced, "they are the same after a restart")
}

// A command on a message may open a form; what says that it was heard takes the place of
// its deferred answer.
func TestFormOnMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakediscord.Options{}, onMessages(true))
	p := r.fake.Person(ada, channel, guild, "en-US")
	r.registered()
	message := r.posted()
	used, err := p.UseOn(message, "New words")
	require.NoError(t, err)
	_, err = p.Submit(r.form(p, used), map[string]string{"prompt": "a bear"})
	require.NoError(t, err)
	e := r.event(0)
	require.Equal(t, []any{platform.Pressed, "rx:" + message, map[string]string{"prompt": "a bear"}}, []any{e.Kind, e.Data, e.Filled})
	require.NoError(t, r.d.Answer(r.ctx, e.Press, "on it"))
	require.Equal(t, ada, r.sees(p, "the answer", saying("on it")).Only)
	require.Len(t, p.Sees(), 2)
}
