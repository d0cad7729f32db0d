package conversation

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
)

// Again is another picture, also of one whose seed was chosen: the same seed would be
// the same picture.
func TestAgainIsAnotherPicture(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	r.event("5", "5", platform.Said, "m1", "/generate a fox --seed 7")
	ids, err := r.store.Requests.ActiveOf(r.ctx, "telegram:5")
	require.NoError(t, err)
	require.Len(t, ids, 1)
	require.NoError(t, r.talk.Handle(r.ctx, platform.Event{
		ID: "press", Platform: "telegram", Kind: platform.Pressed, Press: "p", Data: request.ButtonData(request.VerbAgain, ids[0]),
		User: platform.User{ID: "5"}, Chat: platform.Chat{ID: "5"}, Message: platform.Message{ID: "b1"},
	}))
	again, err := r.talk.o.Runner.Load(r.ctx, request.IDOf("telegram/press"))
	require.NoError(t, err)
	require.Equal(t, "a fox", again.Args.Prompt)
	require.NotEqual(t, uint64(7), again.Args.Seed)
}

// In a group, words are for the bridge only if they name it.
func TestMentionsInGroups(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	said := func(id string, addressed bool) {
		require.NoError(t, r.talk.Handle(r.ctx, platform.Event{
			ID: id, Platform: "telegram", Kind: platform.Said, User: platform.User{ID: "5"}, Addressed: addressed,
			Chat: platform.Chat{ID: "-9", Group: true}, Message: platform.Message{ID: id, Text: "a fox " + id},
		}))
	}
	said("1", false)
	said("2", true)
	require.Equal(t, []string{"a fox 2"}, r.prompts("5"))
}

// A status message of before a restart, of which nobody knows, goes when its button is
// pressed, and does not look as if it were going to change.
func TestLostStatusMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	r.event("5", "5", platform.Said, "m1", "/generate a fox")
	require.Contains(t, r.p.in("5")[0], "👍")
	ids, err := r.store.Requests.ActiveOf(r.ctx, "telegram:5")
	require.NoError(t, err)
	rec, err := r.talk.o.Runner.Load(r.ctx, ids[0])
	require.NoError(t, err)
	for _, message := range []string{rec.Status, "lost"} {
		require.NoError(t, r.talk.Handle(r.ctx, platform.Event{
			ID: "press" + message, Platform: "telegram", Kind: platform.Pressed, Press: "p", Data: request.ButtonData(request.VerbStatus, ids[0]),
			User: platform.User{ID: "5"}, Chat: platform.Chat{ID: "5"}, Message: platform.Message{ID: message},
		}))
	}
	require.Equal(t, []string{"lost"}, r.p.gone)
}
