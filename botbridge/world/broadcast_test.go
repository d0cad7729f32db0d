package world_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
)

// A broadcast continues where a kill has cut it, and nobody gets it twice.
func TestBroadcastGoesOnAfterAKill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *options) {
			// At Telegram's own pace the broadcast takes seconds.
			o.Fake.Scale = 1
			o.Config = strings.ReplaceAll(botYAML, "rate: 10", "rate: 1")
		})
		const chats = 60
		var people []*fakebot.Person
		for n := range chats {
			p := r.Fake.Person(int64(200+n), "en")
			p.Say("/queue")
			people = append(people, p)
		}
		for _, p := range people {
			r.waitFor(p, "an answer", saying("Nothing in your queue"))
		}
		admin := r.Fake.Person(1, "en")
		news := saying("We are back.")
		heard := func() (n int) {
			for _, p := range people {
				n += len(filter(p.All(), func(m fakebot.Message) bool { return m.FromBot && news(m) }))
			}
			return n
		}
		begun, _ := admin.Say("/broadcast We are back.")
		r.wait(people[0], "the first", func([]fakebot.Message) bool { return heard() > 0 })
		r.Bridge.Kill()
		cut := heard()
		r.Bridge.Start(t)
		done := r.waitFor(admin, "the end", answering(begun, saying("Your message has reached")))
		t.Logf("cut after %d; %s", cut, done.Text)
		for _, p := range people {
			require.LessOrEqual(t, len(filter(p.All(), news)), 1, "nobody hears it twice")
		}
		require.GreaterOrEqual(t, heard(), chats-8, "at most those that were being told at that moment are left out")
	})
}
