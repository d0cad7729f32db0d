//go:build unix

package e2e

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/fakebot"
	"github.com/comfyhub/comfyhub/botbridge/internal/stage"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// Redis goes away at the moment of a payment, which nobody can store then. The bridge asks
// for it again and again, is killed, begins without Redis, and gets it when Redis is back.
func TestPaidWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var armed atomic.Bool
	r := newRig(t, selling, func(o *stage.Options) {
		o.Env = []string{"COMFYHUB_BOT_REDIS=" + server.URL()}
		o.Fake.Fault = func(method string) fakebot.Fault {
			if method == "answerPreCheckoutQuery" && armed.CompareAndSwap(true, false) {
				server.Stop()
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
		require.NoError(t, r.RestartBridge(r.ctx))
		server.Start()
		r.wait(ada, "its end", func(list []fakebot.Message) bool { return ends(list, asked) == 1 })
		r.charge(charge, command == "/broken")
		require.LessOrEqual(t, len(filter(ada.All(), answering(asked, isPicture))), 1)
	}
}
