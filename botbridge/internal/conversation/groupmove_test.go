package conversation

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// move is the event that group -9 is -1009 now.
func (r *rig) move() {
	r.t.Helper()
	r.last++
	require.NoError(r.t, r.talk.Handle(r.ctx, platform.Event{
		ID: "move", Platform: "telegram", Kind: platform.Moved, Chat: platform.Chat{ID: "-9", Group: true}, To: "-1009",
	}))
}

// The settings of a group stay when it gets a new id, whatever comes first and how often.
func TestSettingsMoveWithTheGroup(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]func(r *rig){
		"once":                            func(r *rig) { r.move() },
		"twice":                           func(r *rig) { r.move(); r.move() },
		"the bot has left the old one":    func(r *rig) { r.event("5", "-9", platform.Left, "", ""); r.move() },
		"the bot leaves the old one then": func(r *rig) { r.move(); r.event("5", "-9", platform.Left, "", "") },
		"said there is only an answer": func(r *rig) {
			r.p.fail["-9"] = &platform.MovedError{To: "-1009"}
			r.event("5", "-9", platform.Said, "m", "/queue")
			r.move()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, limits.Config{AllowChats: []string{"telegram:-9"}})
			r.regroup("9", "-9", "lang", "ru")
			c(r)
			before := len(r.p.in("-1009"))
			r.event("5", "-1009", platform.Said, "m1", "/queue")
			require.Equal(t, []string{"В очереди у вас пусто."}, r.p.in("-1009")[before:])
			r.regroup("9", "-1009", "lang", "en")
			r.move()
			r.event("5", "-1009", platform.Said, "m2", "/queue")
			require.Equal(t, "Nothing in your queue.", r.p.in("-1009")[before+1], "what was chosen since is not lost")
			require.Equal(t, []string{"telegram|group|-1009"}, must.Get(r.store.Chats.All(r.ctx))(t), "broadcasts go there")
		})
	}
}

// What is answered when the group has moved is said in the new chat, and its buttons work
// there.
func TestAnswerToAMovedGroup(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	id := r.pictured("5", "-9")
	r.p.fail["-9"] = &platform.MovedError{To: "-1009"}
	r.event("5", "-9", platform.Said, "m1", "/settings")
	posts, _ := r.sent()
	require.Len(t, posts, 1)
	require.Empty(t, posts[0].ReplyTo, "messages have other ids there")
	require.Equal(t, []string{posts[0].Text}, r.p.in("-1009"))
	r.move()
	r.tap("5", "-1009", "mo", id)
	posts, _ = r.sent()
	require.Len(t, posts, 1)
	require.Contains(t, posts[0].Text, "a fox", "its pictures have moved, too")
	require.Equal(t, []string{posts[0].Text}, r.p.in("-1009")[1:])
	require.Equal(t, []string{"b2"}, messagesOf(r.record(id)), "nothing is removed there by an old id")
}

// A blocked group stays blocked.
func TestBlockedGroupMoves(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{BlockChats: []string{"telegram:-9"}})
	r.move()
	r.event("5", "-1009", platform.Said, "m1", "/queue")
	require.Empty(t, r.p.in("-1009"))
}
