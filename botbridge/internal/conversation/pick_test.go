package conversation

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// made stores a request of a user that has made two pictures, as after a restart.
func (r *rig) made(command, user, chat string) string {
	r.t.Helper()
	rec := request.NewRecord(request.IDOf("made/" + command + user))
	rec.Platform, rec.Chat.ID, rec.User.ID, rec.Language, rec.Message = "telegram", chat, user, "en", "m"
	rec.Phase, rec.Outcome, rec.Command = request.Over, request.Done, command
	rec.Args = workflow.Args{Prompt: "a fox", Seed: 7}
	for _, name := range []string{"a.png", "b.png"} {
		out := request.Output{State: request.Arrived}
		out.Ref.Filename, out.Ref.Type = name, "output"
		rec.Outputs = append(rec.Outputs, out)
	}
	_, err := r.store.Requests.Create(r.ctx, rec.ID, &rec, state.Ask{Who: rec.Tenant()})
	require.NoError(r.t, err)
	_, err = r.store.Requests.Finish(r.ctx, rec.ID, 1, &rec, state.End{Who: rec.Tenant(), Asked: rec.Asked})
	require.NoError(r.t, err)
	return rec.ID
}

func TestPicturesByNumber(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	press := func(user, chat, data string) (request.Record, error) {
		r.last++
		e := platform.Event{
			ID: "p" + data + user, Platform: "telegram", Kind: platform.Pressed, Press: "p", Data: data,
			User: platform.User{ID: user, Language: "en"}, Chat: platform.Chat{ID: chat}, Message: platform.Message{ID: "b"},
		}
		require.NoError(t, r.talk.Handle(r.ctx, e))
		return r.talk.o.Runner.Load(r.ctx, request.IDOf(e.Key()))
	}
	id := r.made("generate", "5", "5")

	// Without a command for it: others with the seed beside.
	rec, err := press("5", "5", request.ButtonData("v2", id))
	require.NoError(t, err)
	require.Equal(t, "generate", rec.Command)
	require.Equal(t, "a fox", rec.Args.Prompt)
	require.EqualValues(t, 9, rec.Args.Seed)
	require.Empty(t, rec.Inputs)

	// With one: from the picture of that number, for whoever pressed.
	vary, err := workflow.NewCommand("vary", workflow.Spec{Varies: true}, []byte(`{"1": {"class_type": "LoadImage", "inputs": {"image": "x.png"}},
		"2": {"class_type": "Text", "inputs": {"text": "x"}, "_meta": {"title": "prompt"}}}`))
	require.NoError(t, err)
	upscale, err := workflow.NewCommand("upscale", workflow.Spec{Upscales: true}, []byte(`{"1": {"class_type": "LoadImage", "inputs": {"image": "x.png"}}}`))
	require.NoError(t, err)
	r.talk.commands.byName["vary"], r.talk.commands.byName["upscale"], r.talk.commands.vary, r.talk.commands.upscale = vary, upscale, "vary", "upscale"
	for data, want := range map[string][2]string{"v1": {"vary", "a.png"}, "v2": {"vary", "b.png"}, "u2": {"upscale", "b.png"}} {
		rec, err := press("6", "5", request.ButtonData(data, id))
		require.NoError(t, err, data)
		require.Equal(t, want[0], rec.Command)
		require.Equal(t, want[1], rec.Inputs[0].From.Filename)
		require.Equal(t, "telegram:5", rec.Inputs[0].Owner)
		require.Equal(t, "6", rec.User.ID)
		require.Equal(t, "a fox", rec.Words(), "what the picture shows is still known")
	}

	// What nobody offered, and a button of another chat.
	for _, data := range []string{"u0", "u3", "v-1", "v", "u", "u1x", "q1", "u99999999999999999999"} {
		_, err := press("5", "5", request.ButtonData(data, id))
		require.ErrorIs(t, err, state.ErrNotFound, data)
	}
	_, err = press("7", "7", request.ButtonData("v1", id))
	require.ErrorIs(t, err, state.ErrNotFound)
}
