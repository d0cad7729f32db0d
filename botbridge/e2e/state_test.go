//go:build unix

package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/fakebot"
	"github.com/comfyhub/comfyhub/botbridge/internal/stage"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// Two bridges on one Redis: one acts, and the other goes on where it was
// killed. Neither disturbs the other's polling.
func TestStandbyTakesOver(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := newRig(t, func(o *stage.Options) { o.Env = []string{"COMFYHUB_BOT_REDIS=" + server.URL()} })
	require.NoError(t, r.StartStandby())
	ada := r.Fake.Person(4, "en")
	var asked []int
	for range 4 {
		m, _ := ada.Say("/work")
		asked = append(asked, m)
	}
	r.pictures(ada, asked[0], 1)
	r.KillBridge()
	late, _ := ada.Say("/work")
	for _, m := range append(asked, late) {
		r.wait(ada, "an end", func(list []fakebot.Message) bool { return ends(list, m) > 0 })
	}
	for _, m := range append(asked, late) {
		require.LessOrEqual(t, len(filter(ada.All(), answering(m, isPicture))), 1)
	}
}

// A Redis that is away: what is said stays at Telegram, its author is told once,
// and everything is answered when it is back.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := newRig(t, func(o *stage.Options) { o.Env = []string{"COMFYHUB_BOT_REDIS=" + server.URL()} })
	ada := r.Fake.Person(4, "en")
	running, _ := ada.Say("/slow")
	r.waitFor(ada, "the status", answering(running, func(fakebot.Message) bool { return true }))
	server.Stop()
	first, _ := ada.Say("/work")
	second, _ := ada.Say("/work")
	r.waitFor(ada, "the excuse", saying("I cannot take notes just now"))
	server.Start()
	for _, m := range []int{running, first, second} {
		r.pictures(ada, m, 1)
	}
	require.Len(t, filter(ada.All(), saying("I cannot take notes")), 1, "told once")
	require.Len(t, filter(ada.All(), isPicture), 3)
}
