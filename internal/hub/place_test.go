package hub

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

// A bot has a client id for each of its users, and names none when it counts, clears and
// interrupts: that concerns everything it has posted, however many ids it used, and even after the
// hub has restarted.
func TestBotWithManyClients(t *testing.T) {
	const users = 60
	inBubble(t, func(t *testing.T) {
		b := withPage(t, 1)
		bot, other := b.script(), b.browser()
		theirs := other.submit(work(1, 0, "none"), "other")
		other.awaits(theirs, "done")
		mine := map[string]bool{}
		running := ""
		for n := range users {
			id := bot.submit(endless(n), fmt.Sprint("user ", n))
			if n == 0 {
				bot.awaits(id, "running")
				running = id
			}
			mine[id] = true
		}
		theirs = other.submit(endless(users), "other")
		type item = []json.RawMessage
		first := func() []string {
			queue := decoded[struct {
				Pending []item `json:"queue_pending"`
			}](t, bot.sends("GET", "/queue", ""))
			var ids []string
			for _, i := range queue.Pending[:users-1] {
				var id string
				require.NoError(t, json.Unmarshal(i[1], &id))
				ids = append(ids, id)
			}
			return ids
		}
		for range 2 {
			require.Equal(t, users, bot.count())
			require.Equal(t, 1, other.count())
			for _, id := range first() {
				require.True(t, mine[id], "what others have posted comes behind")
			}
			b.stop()
			b.start()
			b.connected(1)
			bot.awaits(running, "running")
		}
		bot.posts("/queue", `{"clear": true}`)
		require.Equal(t, 1, bot.count())
		bot.posts("/interrupt", "")
		bot.awaits(running, "cancelled")
		other.awaits(theirs, "running")
		bot.posts("/history", `{"clear": true}`)
		require.NotContains(t, bot.states(), running)
		require.Equal(t, 0, bot.count())
		j := must(b.hub.Jobs().FindLive(t.Context(), job.DefaultTenant, theirs))(t)
		require.NoError(t, b.hub.Canceller().Stop(t.Context(), j))
	})
}
