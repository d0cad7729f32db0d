package conversation

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
)

// types handles what a user types after the bot's name, and returns what is offered.
func (r *rig) types(user, words string) (list []platform.Offer) {
	r.t.Helper()
	r.last++
	e := platform.Event{
		ID: "query" + strconv.Itoa(r.last), Platform: "telegram", Kind: platform.Queried, Press: "q", User: platform.User{ID: user, Language: "en"},
		Chat: platform.Chat{ID: user}, Message: platform.Message{Text: words}, At: time.Now(),
	}
	before := len(r.p.offers)
	require.NoError(r.t, r.talk.Handle(r.ctx, e))
	return r.p.offers[before:]
}

// What somebody types in any chat leads to the private one, and counts there like a message.
func TestInline(t *testing.T) {
	r := parallelRig(t, limits.Config{Pictures: 2, Messages: 100, Words: []string{"forbidden"}, BlockUsers: []string{"telegram:6"}})
	offers := r.types("5", "a red fox")
	require.Equal(t, []platform.Offer{{Label: "🎨 Make this in our chat", Start: request.IDOf("a red fox")}}, offers)
	require.Equal(t, []platform.Offer{{}}, r.types("5", " "))
	require.Empty(t, r.types("6", "a red fox"), "who may not ask is shown nothing")
	require.Empty(t, r.p.in("5"), "nothing is said while somebody types")

	start := "/start " + request.IDOf("a red fox")
	require.Equal(t, "generate a red fox", r.asks(r.message("5", "5", start, "")))
	require.Empty(t, r.asks(r.message("7", "7", start, "")), "whoever has not typed it is greeted")
	require.Contains(t, r.heard("7"), "Hi!")
	require.Empty(t, r.asks(r.message("5", "-9", start, "")), "words are only for the private chat")

	r.types("5", "/generate an owl --steps 7")
	require.Empty(t, r.asks(r.message("5", "5", start, "")), "only the last words are kept")
	require.Equal(t, "generate an owl", r.asks(r.message("5", "5", "/start "+request.IDOf("/generate an owl --steps 7"), "")))
	r.types("5", "a forbidden thing")
	require.Empty(t, r.asks(r.message("5", "5", "/start "+request.IDOf("a forbidden thing"), "")))
	require.Contains(t, r.heard("5"), "won't make")
	r.types("5", "a wolf")
	require.Empty(t, r.asks(r.message("5", "5", "/start "+request.IDOf("a wolf"), "")), "the share of the day is used up")
}

// A picture can be sent to another chat by whom it was made for, and by nobody else.
func TestShare(t *testing.T) {
	r := parallelRig(t, limits.Config{Messages: 100})
	id := r.painted("5", "5", "a fox")
	shown := r.record(id).Outputs[0].Message
	require.Equal(t, []platform.Offer{{Shown: &platform.Original{Chat: "5", Message: shown}}}, r.types("5", "#"+id))
	require.Equal(t, []platform.Offer{{}}, r.types("7", "#"+id), "it is another's")
	require.Equal(t, []platform.Offer{{}}, r.types("5", "#"+r.painted("5", "-9", "a bear")), "it is a group's")
	r.p.lost = true
	require.Equal(t, []platform.Offer{{Label: "I can't send it from here. Forward it from our chat", Start: shareStart}}, r.types("5", "#"+id))
}

// Typing takes nothing from the messages that somebody may write, and has a bound of its own.
func TestTypingIsBounded(t *testing.T) {
	r := parallelRig(t, limits.Config{Messages: 3})
	n := 0
	for range 20 {
		n += len(r.types("5", "a red fox"))
	}
	require.Less(t, n, 20)
	require.Equal(t, "generate a wolf", r.asks(r.message("5", "5", "/generate a wolf", "")))
}
