package conversation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

func TestPrivateBotIsSilentInForeignGroups(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{AllowUsers: []string{"telegram:5"}, AllowChats: []string{"telegram:-7"}})
	r.event("6", "-9", platform.Said, "m1", "/help")
	require.Empty(t, r.p.in("-9"), "nobody there asked for it")
	r.event("5", "-9", platform.Said, "m2", "/help")
	require.Len(t, r.p.in("-9"), 1, "its user may use it there")
	r.event("6", "6", platform.Said, "m3", "/help")
	require.Contains(t, r.p.in("6")[0], "telegram:6", "whom to ask, and for which id")
	r.event("6", "-7", platform.Said, "m4", "/help")
	require.Len(t, r.p.in("-7"), 1)
}

func TestBroadcastReachesThoseWhoAreLetIn(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{AllowUsers: []string{"telegram:5", "telegram:8", "telegram:9"}, AllowChats: []string{"telegram:-7"}, Admins: []string{"telegram:1"}})
	r.event("5", "5", platform.Said, "m", "/help")  // stays
	r.event("6", "6", platform.Said, "m", "/help")  // a stranger
	r.event("6", "-7", platform.Said, "m", "/help") // an allowed group
	r.event("6", "-9", platform.Said, "m", "/help") // a foreign group
	r.event("8", "8", platform.Said, "m", "/help")  // blocks the bot
	r.event("9", "9", platform.Said, "m", "/help")  // is banned later
	r.event("8", "8", platform.Left, "", "")
	r.event("1", "1", platform.Said, "m", "/ban 9")
	// As an older version has noted it.
	require.NoError(t, r.store.Chats.Meet(r.ctx, "telegram|private|6", ""))
	r.event("1", "1", platform.Said, "m", "/broadcast Hello.")
	require.Eventually(t, func() bool {
		said := r.p.in("1")
		return said[len(said)-1] == "Your message has reached 3 of 5 chats."
	}, time.Minute, 5*time.Millisecond)
	for chat, want := range map[string]bool{"1": true, "5": true, "-7": true, "6": false, "-9": false, "8": false, "9": false} {
		if want {
			require.Contains(t, r.p.in(chat), "Hello.", chat)
		} else {
			require.NotContains(t, r.p.in(chat), "Hello.", chat)
		}
	}
	// A chat that turns out to be closed leaves the list.
	r.p.mu.Lock()
	r.p.fail["5"] = platform.ErrForbidden
	r.p.mu.Unlock()
	r.event("1", "1", platform.Said, "m", "/broadcast Again.")
	require.Eventually(t, func() bool {
		chats, err := r.store.Chats.All(r.ctx)
		require.NoError(t, err)
		return len(chats) == 4
	}, time.Minute, 5*time.Millisecond)
	// It is on the list again once its user comes back.
	r.p.mu.Lock()
	delete(r.p.fail, "5")
	r.p.mu.Unlock()
	r.event("5", "5", platform.Said, "m9", "/help")
	chats, err := r.store.Chats.All(r.ctx)
	require.NoError(t, err)
	require.Contains(t, chats, "telegram|private|5")
}
