package world_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
)

// Two bridges share one Redis. One acts, and the other continues where the first
// was killed. Neither disturbs the other's polling.
func TestStandbyTakesOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.bot("standby", r.Bridge.config)
		ada := r.Fake.Person(4, "en")
		var asked []int
		for range 4 {
			m, _ := ada.Say("/work")
			asked = append(asked, m)
		}
		r.pictures(ada, asked[0], 1)
		r.Bridge.Kill()
		late, _ := ada.Say("/work")
		for _, m := range append(asked, late) {
			r.wait(ada, "an end", func(list []fakebot.Message) bool { return ends(list, m) > 0 })
		}
		for _, m := range append(asked, late) {
			require.LessOrEqual(t, len(filter(ada.All(), answering(m, isPicture))), 1)
		}
	})
}

// While Redis is away, messages stay at Telegram and their author is told once.
// Everything is answered when Redis is back.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ada := r.Fake.Person(4, "en")
		running, _ := ada.Say("/slow")
		r.waitFor(ada, "the status", answering(running, func(fakebot.Message) bool { return true }))
		r.w.Redis.Crash(false)
		first, _ := ada.Say("/work")
		second, _ := ada.Say("/work")
		r.waitFor(ada, "the excuse", saying("I'm having trouble on my side"))
		r.w.Redis.Start()
		for _, m := range []int{running, first, second} {
			r.pictures(ada, m, 1)
		}
		require.Len(t, filter(ada.All(), saying("I'm having trouble on my side")), 1, "told once")
		require.Len(t, filter(ada.All(), isPicture), 3)
	})
}
