package conversation

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
)

// An operator lets people and groups in from the chat.
func TestLettingIn(t *testing.T) {
	r := parallelRig(t, limits.Config{Admins: []string{"telegram:1", "telegram:2"}, AllowUsers: []string{"telegram:1"}, Messages: 100})
	r.event("5", "5", platform.Said, "m1", "hello")
	require.Contains(t, r.heard("5"), "send its owner this id: telegram:5", "no operator has written to the bot")
	require.Empty(t, r.p.in("1"))

	r.event("1", "1", platform.Said, "m2", "/queue")
	for range 3 {
		r.event("6", "6", platform.Said, "m3", "hello")
	}
	require.Contains(t, r.p.in("6")[0], "I've asked its owner")
	said := r.p.in("1")
	require.Len(t, said, 2, "once a day: %v", said)
	require.Equal(t, " (telegram:6) would like to use this bot.", said[1])
	require.Empty(t, r.p.in("2"), "who has never written cannot be told")
	in := request.ButtonData(verbLetIn, request.IDOf(knockKind+"telegram:6"))
	r.pressed("6", "6", "b9", in)
	require.Empty(t, r.asks(r.message("6", "6", "/generate a fox", "")), "nobody lets themselves in")
	r.pressed("1", "1", "b3", in)
	require.Contains(t, r.heard("6"), "You're in!")
	_, edits := r.sent()
	require.Contains(t, edits[len(edits)-1].Text, "may use this bot now")
	require.Equal(t, "generate a fox", r.asks(r.message("6", "6", "/generate a fox", "")))

	require.Empty(t, r.asks(r.message("7", "-9", "/generate a wolf", "")))
	r.event("1", "-9", platform.Said, "m4", "/allow")
	require.Equal(t, "generate a wolf", r.asks(r.message("7", "-9", "/generate a wolf", "")), "the group is let in")
	r.event("1", "1", platform.Said, "m5", "/allow")
	require.Contains(t, r.heard("1"), "/allow ID")
	r.event("1", "1", platform.Said, "m6", "/allow 8")
	require.Equal(t, "generate a bear", r.asks(r.message("8", "8", "/generate a bear", "")))
	r.event("1", "1", platform.Said, "m7", "/disallow telegram:8")
	require.Empty(t, r.asks(r.message("8", "8", "/generate an owl", "")))
	r.event("8", "8", platform.Said, "m8", "/allow 8")
	require.Empty(t, r.asks(r.message("8", "8", "/generate an owl", "")), "only operators let in")
}

// Operators name people by their ids: nobody is called @alice, and a name that hides what follows
// it is shown without that.
func TestNamesOfStrangers(t *testing.T) {
	r := parallelRig(t, limits.Config{Admins: []string{"telegram:1"}, AllowUsers: []string{"telegram:1"}, Messages: 100})
	for _, text := range []string{"/allow @alice", "/allow telegram:alice", "/allow nowhere:5", "/ban @alice", "/quota @alice 5"} {
		r.event("1", "1", platform.Said, "m1"+text, text)
		require.Contains(t, r.heard("1"), " ID", text)
	}
	r.event("1", "-9", platform.Said, "m2", "/allow @alice")
	require.Contains(t, r.heard("-9"), "/allow ID", "it is not the group that was meant")
	require.Equal(t, "Ada (telegram:42)", shownName(platform.User{Name: "Ada\u202e (telegram:42)\n"}))
}

// Who has refused somebody is not asked again by the button.
func TestKeptOut(t *testing.T) {
	r := parallelRig(t, limits.Config{Admins: []string{"telegram:1"}, AllowUsers: []string{"telegram:1"}, Messages: 100})
	r.event("1", "1", platform.Said, "m1", "/queue")
	r.event("6", "6", platform.Said, "m2", "hello")
	r.pressed("1", "1", "b2", request.ButtonData(verbKeepOut, request.IDOf(knockKind+"telegram:6")))
	_, edits := r.sent()
	require.Contains(t, edits[0].Text, "wasn't let in")
	require.Empty(t, r.asks(r.message("6", "6", "/generate a fox", "")))
	require.Empty(t, r.pressed("1", "1", "b2", request.ButtonData(verbLetIn, "nobody"))[:0])
}
