package world_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
)

// Redis goes away at the moment of a payment, which nobody can store then. The bridge asks
// for it again and again, is killed, begins without Redis, and gets it when Redis is back.
func TestPaidWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var armed atomic.Bool
		var r *rig
		r = newRig(t, selling, func(o *options) {
			o.Fake.Fault = func(method string) fakebot.Fault {
				if method == "answerPreCheckoutQuery" && armed.CompareAndSwap(true, false) {
					r.w.Redis.Crash(false)
				}
				return fakebot.None
			}
		})
		for n, command := range []string{"/slow", "/broken"} {
			ada := r.Fake.Person(int64(90+n), "en")
			asked, _ := ada.Say(command)
			r.accepts(ada)
			invoice := r.invoice(ada, asked)
			armed.Store(true)
			charge := r.pay(ada, invoice.ID)
			polls := func() int { return r.Fake.Calls()["getUpdates"] }
			fails := func() {
				before := polls()
				r.until("the payment is asked for again", func() bool { return polls() >= before+3 })
			}
			fails()
			r.Bridge.Kill()
			r.Bridge.Start(t)
			r.w.Redis.Start()
			r.wait(ada, "its end", func(list []fakebot.Message) bool { return ends(list, asked) == 1 })
			r.charge(charge, command == "/broken")
			require.LessOrEqual(t, len(filter(ada.All(), answering(asked, isPicture))), 1)
		}
	})
}
