package world_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// selling gives everybody one free picture a day; /slow, /endless and /broken are never free.
func selling(o *options) {
	c := strings.ReplaceAll(botYAML, "waiting: 6", "waiting: 6\n  pictures_per_day: 1")
	c = strings.ReplaceAll(c, "  work: {", "  work: {stars: 3, ")
	c = strings.ReplaceAll(c, "  slow: {", "  slow: {stars: 5, price: 9, ")
	c = strings.ReplaceAll(c, "  endless: {", "  endless: {stars: 5, price: 9, ")
	c = strings.ReplaceAll(c, "  broken: {", "  broken: {stars: 4, price: 9, ")
	o.Config = c + "payments: {contact: \"@help\"}\nterms: {en: Be kind.}\n"
}

// accepts accepts the terms: what was said goes on.
func (r *rig) accepts(p *fakebot.Person) {
	r.t.Helper()
	terms := r.waitFor(p, "the terms", fakebot.Saying("Be kind."))
	p.Press(terms.ID, button(r.t, terms, "I accept"))
}

// invoice waits for the invoice that answers a message.
func (r *rig) invoice(p *fakebot.Person, message int) fakebot.Message {
	r.t.Helper()
	return r.waitFor(p, "an invoice", fakebot.Answering(message, func(m fakebot.Message) bool { return m.Kind == "invoice" }))
}

// charge waits until the charge of a paid invoice is as wanted.
func (r *rig) charge(id string, refunded bool) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		for _, c := range r.Fake.Charges() {
			if c.ID == id {
				return c.Refunded == refunded
			}
		}
		return false
	}, patience, 20*time.Millisecond)
}

// pay pays an invoice and returns the charge.
func (r *rig) pay(p *fakebot.Person, invoice int) string {
	r.t.Helper()
	answer := r.checkout(p, invoice, p.Pay(invoice))
	require.True(r.t, answer.OK, answer.Refusal)
	return answer.Charge
}

// checkout waits for the answer to an attempt to pay. Where there was none in time, as on a
// machine that stands still, a person tries again.
func (r *rig) checkout(p *fakebot.Person, invoice int, q *fakebot.Checkout) fakebot.Checkout {
	r.t.Helper()
	for deadline := time.Now().Add(patience); ; q = p.Pay(invoice) {
		ctx, cancel := context.WithTimeout(r.ctx, 15*time.Second)
		answer, err := r.Fake.Answered(ctx, q)
		cancel()
		if err == nil {
			return answer
		}
		require.True(r.t, time.Now().Before(deadline), "nobody says whether it may be paid")
	}
}

// The first picture of a day is free, the next one paid for; what fails or is stopped is
// given back; and nobody pays for somebody else.
func TestStars(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		r := newRig(t, selling)
		ada, bob := r.Fake.Person(70, "en").In(-70), r.Fake.Person(71, "en").In(-70)
		free, _ := ada.Say("/work")
		r.accepts(ada)
		r.pictures(ada, free, 1)
		asked, _ := ada.Say("/work")
		invoice := r.invoice(ada, asked)
		require.Equal(t, 3, invoice.Invoice.Stars)
		answer := r.checkout(bob, invoice.ID, bob.Pay(invoice.ID))
		require.False(t, answer.OK)
		require.NotEmpty(t, answer.Refusal)
		kept := r.pay(ada, invoice.ID)
		r.pictures(ada, asked, 1)
		answer = r.checkout(ada, invoice.ID, ada.Pay(invoice.ID))
		require.False(t, answer.OK, "once")

		failing, _ := ada.Say("/broken")
		failed := r.pay(ada, r.invoice(ada, failing).ID)
		r.waitFor(ada, "the end", fakebot.Answering(failing, fakebot.Saying("You're getting your 4 Stars back.")))
		r.charge(failed, true)
		stopping, _ := ada.Say("/endless") // does not end before it is cancelled
		stopped := r.pay(ada, r.invoice(ada, stopping).ID)
		r.waitFor(ada, "its status", fakebot.Answering(stopping, func(m fakebot.Message) bool { return len(m.Buttons) > 0 }))
		ada.Say("/cancel")
		r.waitFor(ada, "the end", fakebot.Answering(stopping, fakebot.Saying("You're getting your 5 Stars back.")))
		r.charge(stopped, true)
		r.charge(kept, false)

		admin := r.Fake.Person(1, "en")
		admin.Say("/refund " + kept)
		r.charge(kept, true)
		question, _ := ada.In(70).Say("/paysupport")
		r.waitFor(ada.In(70), "help", fakebot.Answering(question, func(m fakebot.Message) bool {
			return strings.Contains(m.Text, "@help") && strings.Contains(m.Text, kept)
		}))
		for _, c := range r.Fake.Charges() {
			require.LessOrEqual(t, c.Refunds, 1, "%+v", c)
		}
	})
}

// The bridge is killed at each call about money, after Telegram has taken it and before the
// bridge knows: nothing that was paid for is lost, made twice, or kept for nothing.
func TestStarsKilledAtEachCall(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		var armed atomic.Pointer[string]
		taken := make(chan struct{}, 1)
		r := newRig(t, selling, func(o *options) {
			o.Fake.Fault = func(method string) fakebot.Fault {
				if at := armed.Load(); at == nil || *at != method || !armed.CompareAndSwap(at, nil) {
					return fakebot.None
				}
				taken <- struct{}{}
				return fakebot.HangAfter
			}
		})
		for n, c := range []struct{ call, command string }{
			{"sendInvoice", "/slow"},
			{"answerPreCheckoutQuery", "/slow"},
			{"sendMessage", "/slow"},
			{"sendPhoto", "/slow"},
			{"answerPreCheckoutQuery", "/broken"},
			{"editMessageText", "/broken"},
			{"refundStarPayment", "/broken"},
		} {
			kill := func() {
				t.Helper()
				select {
				case <-taken:
				case <-time.After(patience):
					require.Failf(t, "no such call", "%s", c.call)
				}
				r.Bridge.Kill()
				r.Bridge.Start(t)
			}
			ada := r.Fake.Person(int64(80+n), "en")
			asked, _ := ada.Say(c.command)
			r.accepts(ada)
			if c.call == "sendInvoice" {
				armed.Store(&c.call)
				kill()
			}
			invoice := r.invoice(ada, asked)
			if c.call != "sendInvoice" {
				armed.Store(&c.call)
			}
			before := len(r.Fake.Charges())
			checkout := ada.Pay(invoice.ID)
			if c.call != "sendInvoice" {
				kill()
			}
			answer := r.checkout(ada, invoice.ID, checkout)
			require.True(t, answer.OK)
			r.wait(ada, c.call+": its end", func(list []fakebot.Message) bool { return fakebot.Ends(list, asked) == 1 })
			r.charge(answer.Charge, c.command == "/broken")
			require.LessOrEqual(t, len(fakebot.Filter(ada.All(), fakebot.Answering(asked, fakebot.IsPicture))), 1)
			require.Len(t, r.Fake.Charges(), before+1)
		}
	})
}

// Redis goes away at the moment of a payment, which nobody can store then. The bridge asks
// for it again and again, is killed, begins without Redis, and gets it when Redis is back.
func TestPaidWhileRedisIsAway(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
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
			r.wait(ada, "its end", func(list []fakebot.Message) bool { return fakebot.Ends(list, asked) == 1 })
			r.charge(charge, command == "/broken")
			require.LessOrEqual(t, len(fakebot.Filter(ada.All(), fakebot.Answering(asked, fakebot.IsPicture))), 1)
		}
	})
}
