package conversation

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// till is a platform on which people can pay.
type till struct {
	*chats
	refusals []string // by checkout
	refunds  []string
	broken   int // how many refunds fail
}

func (s *till) Limits() platform.Limits {
	l := s.chats.Limits()
	l.MaxPrice, l.CheckoutWithin = 100, time.Minute
	return l
}

func (s *till) Confirm(_ context.Context, _, refusal string) error {
	s.refusals = append(s.refusals, refusal)
	return nil
}

func (s *till) Refund(_ context.Context, user, charge string) error {
	if s.broken > 0 {
		s.broken--
		return errors.New("not now")
	}
	s.refunds = append(s.refunds, user+"/"+charge)
	return nil
}

// sells lets the rig sell pictures for 5.
func (r *rig) sells() *till {
	s := &till{chats: r.p}
	r.with(func(o *Options) { o.Platform = func(string) platform.Platform { return s } })
	r.with(func(o *Options) { o.Contact = "@help" })
	r.talk.commands.byName["generate"].Spec.Stars = 5
	r.restart()
	return s
}

// invoices are all that were sent.
func (r *rig) invoices() (list []platform.Invoice) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	for _, p := range r.p.posts {
		if p.Invoice != nil {
			list = append(list, *p.Invoice)
		}
	}
	return list
}

// pays handles what a platform says of a payment; with a charge it was made.
func (r *rig) pays(user string, p platform.Payment) {
	r.t.Helper()
	r.last++
	e := platform.Event{
		ID: strconv.Itoa(r.last), Platform: "telegram", Kind: platform.Checkout, Press: "q", User: platform.User{ID: user, Language: "en"},
		Chat: platform.Chat{ID: user}, At: time.Now(), Payment: &p,
	}
	if p.Charge != "" {
		e.Kind = platform.Paid
	}
	require.NoError(r.t, r.talk.Handle(r.ctx, e))
}

// due are the payments that are to be given back.
func (r *rig) due() (ids []string) {
	r.t.Helper()
	list := must.Get(r.store.Payments.Refunds(r.ctx, time.Now().Add(24*time.Hour)))(r.t)
	for _, c := range list {
		ids = append(ids, c.ID)
	}
	return ids
}

// What is free, what is sold, and what is refused.
func TestWhatIsSold(t *testing.T) {
	type row struct {
		limits   limits.Config
		stars    int64
		nowhere  bool // nobody can pay there
		says     []string
		prompts  int
		invoices []int64
		last     string
	}
	beside.Cases(t, map[string]row{
		"nothing has a price":            {says: []string{"a", "b"}, prompts: 2},
		"without a share":                {stars: 5, says: []string{"a", "b -n 1"}, invoices: []int64{5, 5}},
		"first the share, then Stars":    {stars: 5, limits: limits.Config{Pictures: 1}, says: []string{"a", "b"}, prompts: 1, invoices: []int64{5}},
		"a share and no price":           {limits: limits.Config{Pictures: 1}, says: []string{"a", "b"}, prompts: 1, last: "your limit for today"},
		"operators":                      {stars: 5, limits: limits.Config{Admins: []string{"telegram:5"}}, says: []string{"a", "b"}, prompts: 2},
		"a share where nobody can pay":   {stars: 5, nowhere: true, limits: limits.Config{Pictures: 1}, says: []string{"a", "b"}, prompts: 1, last: "can't pay with them here"},
		"no share where nobody can pay":  {stars: 5, nowhere: true, says: []string{"a"}, last: "can't pay with them here"},
		"more than the platform takes":   {stars: 500, says: []string{"a"}, last: "at most 100 at a time"},
		"too much is waiting for a sale": {stars: 5, limits: limits.Config{Pictures: 1, Waiting: 1}, says: []string{"a", "b"}, prompts: 1, last: "1"},
	}, func(t *testing.T, c row) {
		r := newRig(t, c.limits)
		s := r.sells()
		r.talk.commands.byName["generate"].Spec.Stars = c.stars
		if c.nowhere {
			r.with(func(o *Options) { o.Platform = func(string) platform.Platform { return s.chats } })
		}
		for i, text := range c.says {
			r.event("5", "5", platform.Said, "m"+strconv.Itoa(i), "/generate "+text)
		}
		require.Len(t, r.prompts("5"), c.prompts)
		var prices []int64
		for _, i := range r.invoices() {
			prices = append(prices, i.Price)
		}
		require.Equal(t, c.invoices, prices)
		if c.last != "" {
			require.Contains(t, r.heard("5"), c.last)
		}
	})
}

// Only who asked can pay, only what was asked, and only once.
func TestPaying(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	s := r.sells()
	r.event("5", "-5", platform.Said, "m1", "/generate a fox")
	require.Len(t, r.invoices(), 1)
	bill := r.invoices()[0]
	require.Contains(t, bill.About, "back. ", "what may be cut off comes last")
	require.Contains(t, bill.About, ": a fox")
	require.LessOrEqual(t, len(bill.Payload), 128)
	pay := platform.Payment{Payload: bill.Payload, Price: 5}
	r.restart()
	r.pays("6", pay)
	r.pays("5", platform.Payment{Payload: bill.Payload, Price: 4})
	r.pays("5", platform.Payment{Payload: bill.Payload[:36] + ":guessed", Price: 5})
	r.pays("5", platform.Payment{Payload: "nothing", Price: 5})
	r.talk.commands.byName["generate"].Spec.Stars = 6
	r.pays("5", pay)
	r.talk.commands.byName["generate"].Spec.Stars = 5
	require.Len(t, s.refusals, 5)
	require.NotContains(t, s.refusals, "")
	r.pays("5", pay)
	require.Empty(t, s.refusals[5])
	require.Empty(t, r.prompts("5"), "nothing starts before it is paid for")

	pay.Charge = "c1"
	for range 3 {
		r.restart()
		r.pays("5", pay) // the bridge may end after any step
		require.Equal(t, []string{"a fox"}, r.prompts("5"))
	}
	require.Equal(t, "c1", r.record(request.IDOf("telegram/1")).Charge)
	require.Empty(t, r.due())
	pay.Charge = ""
	r.pays("5", pay)
	require.NotEmpty(t, s.refusals[6], "it is paid for")
	pay.Charge = "c2" // two devices at once
	r.pays("5", pay)
	require.Equal(t, []string{"c2"}, r.due())
	require.Equal(t, []string{"a fox"}, r.prompts("5"))
	require.Contains(t, r.heard("5"), "You're getting your 5 Stars back.")
	require.Len(t, must.Get(r.store.Payments.Of(r.ctx, "telegram:5", 10))(t), 2)
}

// An invoice is sent once, and a payment whose order was forgotten is given back.
func TestForgottenOrder(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	s := r.sells()
	for range 2 {
		r.last = 0 // the same event again
		r.event("5", "5", platform.Said, "m1", "/generate a fox")
	}
	require.Len(t, r.invoices(), 1)
	require.NoError(t, r.store.People.PartWith(r.ctx, "telegram:5"))
	pay := platform.Payment{Payload: r.invoices()[0].Payload, Price: 5}
	r.pays("5", pay)
	require.Contains(t, s.refusals[0], "no longer valid")
	pay.Charge = "c1"
	r.pays("5", pay)
	require.Empty(t, r.prompts("5"))
	require.Equal(t, []string{"c1"}, r.due())
	s.broken = 2
	for range 4 {
		list := must.Get(r.store.Payments.Refunds(r.ctx, time.Now().Add(24*time.Hour)))(t)
		for _, c := range list {
			require.NoError(t, r.talk.refunds.one(r.ctx, c))
		}
	}
	require.Equal(t, []string{"5/c1"}, s.refunds, "until it works, and then not again")
	r.event("5", "5", platform.Said, "m2", "/paysupport")
	require.Contains(t, r.heard("5"), "@help")
	require.Contains(t, r.heard("5"), "c1 · refunded")
}

// An operator gives a payment back; others cannot.
func TestRefundByHand(t *testing.T) {
	r := parallelRig(t, limits.Config{Admins: []string{"telegram:1"}})
	r.sells()
	r.event("5", "5", platform.Said, "m1", "/generate a fox")
	r.pays("5", platform.Payment{Payload: r.invoices()[0].Payload, Price: 5, Charge: "c1"})
	r.event("5", "5", platform.Said, "m2", "/refund c1")
	r.event("1", "1", platform.Said, "m3", "/refund c9")
	require.Contains(t, r.heard("1"), "don't know that payment")
	require.Empty(t, r.due())
	for range 2 {
		r.event("1", "1", platform.Said, "m4", "/refund c1")
		require.Contains(t, r.heard("1"), "telegram:5 is getting 5 Stars back (c1)")
		require.Equal(t, []string{"c1"}, r.due())
	}
	c := must.Get(r.store.Payments.Charge(r.ctx, "c1"))(t)
	require.NoError(t, r.talk.refunds.one(r.ctx, c))
	r.event("1", "1", platform.Said, "m5", "/refund c1")
	require.Contains(t, r.heard("1"), "already been refunded")
	require.Equal(t, state.Refunded, must.Get(r.store.Payments.Settle(r.ctx, c, state.Settled, 0))(t))
}

// A changed message has another invoice, and the old one is not good any more.
func TestEditedOrder(t *testing.T) {
	r := parallelRig(t, limits.Config{Words: []string{"forbidden"}})
	s := r.sells()
	r.event("5", "5", platform.Said, "m1", "/generate a fox")
	r.event("5", "5", platform.Edited, "m1", "/generate a fox")
	require.Len(t, r.invoices(), 1, "nobody has changed it")
	old := platform.Payment{Payload: r.invoices()[0].Payload, Price: 5}
	r.event("5", "5", platform.Edited, "m1", "/generate forbidden")
	r.pays("5", old)
	require.Equal(t, []string{""}, s.refusals, "an edit that is refused changes nothing")
	r.event("5", "5", platform.Edited, "m1", "/generate a bear")
	require.Len(t, r.invoices(), 2)
	r.pays("5", old)
	require.NotEmpty(t, s.refusals[1])
	r.pays("5", platform.Payment{Payload: r.invoices()[1].Payload, Price: 5, Charge: "c1"})
	require.Equal(t, []string{"a bear"}, r.prompts("5"))

	// What is paid for stays until what replaces it is.
	r.event("5", "5", platform.Edited, "m1", "/generate a wolf")
	require.Equal(t, []string{"a bear"}, r.prompts("5"))
	r.pays("5", platform.Payment{Payload: r.invoices()[2].Payload, Price: 5, Charge: "c2"})
	require.Eventually(t, func() bool {
		list := r.prompts("5")
		return len(list) == 1 && list[0] == "a wolf"
	}, time.Minute, 10*time.Millisecond)
}

// The script that records a payment has failed halfway: the payment is known, and what it
// pays for is not. It is given back.
func TestPaymentForWhatIsNotStored(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	r.sells()
	r.event("5", "5", platform.Said, "m1", "/generate a fox")
	id := request.IDOf("telegram/1")
	charge := state.Charge{ID: "c1", Platform: "telegram", Who: "telegram:5", User: "5", Request: id, Price: 5, At: time.Now()}
	must.Get(r.store.Payments.Pay(r.ctx, charge, "no order", &request.Record{ID: id}))(t)
	must.Get(r.store.Requests.Finish(r.ctx, id, 1, &request.Record{ID: id}, state.End{Who: "telegram:5", Asked: time.Now(), Command: "x", Outcome: "lost"}))(t)
	require.True(t, must.Get(r.store.Requests.Forget(r.ctx, id))(t))
	require.Empty(t, r.due())
	for range 2 {
		r.pays("5", platform.Payment{Payload: r.invoices()[0].Payload, Price: 5, Charge: "c1"})
		require.Equal(t, []string{"c1"}, r.due())
	}
	require.Contains(t, r.heard("5"), "You're getting your 5 Stars back.")
}

// Settings that cannot be read keep no payment from being recorded.
func TestPaymentWithUnreadableSettings(t *testing.T) {
	r := parallelRig(t, limits.Config{})
	r.sells()
	r.event("5", "5", platform.Said, "m1", "/generate a fox")
	require.NoError(t, r.store.Put(r.ctx, settingsKind, "telegram:5", "no settings", 0))
	r.pays("5", platform.Payment{Payload: r.invoices()[0].Payload, Price: 5, Charge: "c1"})
	require.Equal(t, []string{"a fox"}, r.prompts("5"))
}
