package world_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
)

// A group writes more commands than Telegram lets the bot answer in minutes. Private
// chats and buttons do not notice, and the group is told what is left out.
func TestBusyGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *options) {
			o.Fake.Scale = 1 // Telegram's own limits
			o.Config = strings.ReplaceAll(botYAML, "rate: 10", "rate: 1")
		})
		const group = -600
		ada := r.Fake.Person(31, "en")
		asked, _ := ada.Say("/endless")
		status := r.waitFor(ada, "the status", answering(asked, func(m fakebot.Message) bool { return len(m.Buttons) > 0 }))
		for n := range 80 {
			r.Fake.Person(int64(1000+n), "en").In(group).Say(fmt.Sprintf("/work %d", n))
		}
		here := ada.In(group)
		r.waitFor(here, "what is left out", saying("too much at once"))
		begin := time.Now()
		r.answered(ada.Press(status.ID, button(t, status, "Status")))
		pressed := time.Since(begin)
		question, _ := ada.Say("/help")
		r.waitFor(ada, "help", answering(question, saying("/generate")))
		t.Logf("a button took %v, both %v", pressed, time.Since(begin))
		require.Less(t, len(filter(here.All(), func(m fakebot.Message) bool { return m.FromBot })), 50, "the group still waits")
		over, _ := r.Fake.TooFast()
		require.Zero(t, over)
		require.NotContains(t, r.answered(ada.Press(status.ID, button(t, status, "Cancel"))), "isn't yours")
	})
}

// Who has blocked the bot is not on the list of a broadcast.
func TestBlockedChatsLeaveTheList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for id := range 3 {
			p := r.Fake.Person(int64(40+id), "en")
			p.Say("/queue")
			r.waitFor(p, "an answer", saying("Nothing in your queue"))
		}
		r.Fake.Block(41, true)
		admin := r.Fake.Person(1, "en")
		r.askUntil(admin, "/stats", " 3 chats")
		begun, _ := admin.Say("/broadcast News.")
		done := r.waitFor(admin, "the end", answering(begun, saying("Your message has reached")))
		require.Contains(t, done.Text, "3 of 3")
	})
}
