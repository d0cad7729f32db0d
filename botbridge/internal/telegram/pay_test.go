package telegram

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
)

// From the invoice to the refund, in a topic of a group, by polls and by calls.
func TestPayments(t *testing.T) {
	t.Parallel()
	for _, hook := range []bool{false, true} {
		t.Run(fmt.Sprint("webhook ", hook), func(t *testing.T) {
			t.Parallel()
			payments(t, hook)
		})
	}
}

func payments(t *testing.T, hook bool) {
	t.Helper()
	events := make(chan platform.Event, 4)
	admit := func(_ context.Context, e platform.Event) error { events <- e; return nil }
	var calls atomic.Pointer[Telegram]
	called := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Load().Routes(admit)["POST "+WebhookPath].ServeHTTP(w, r)
	}))
	t.Cleanup(called.Close)
	o := Options{PollTimeout: time.Second}
	if hook {
		o.Webhook, o.Secret = called.URL+WebhookPath, "secret"
	}
	tg, fake := newTelegram(t, fakebot.Options{}, o)
	calls.Store(tg)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	listened := make(chan struct{})
	go func() {
		defer close(listened)
		_ = tg.Listen(ctx, admit)
	}()
	defer func() { cancel(); <-listened }()
	group := platform.Chat{ID: "-9", Topic: "4", Group: true}
	send := func() int {
		ids, err := tg.Send(ctx, group, platform.Post{Invoice: &platform.Invoice{
			Title: "/" + strings.Repeat("x", 40), About: strings.Repeat("ы", 300), Payload: "p1", Price: 5,
		}})
		require.NoError(t, err)
		return number(ids[0])
	}
	ada := fake.Person(7, "en").In(-9)
	for _, refusal := range []string{"not now", ""} {
		asked := ada.Pay(send())
		e := <-events
		require.Equal(t, platform.Checkout, e.Kind)
		require.Equal(t, platform.Payment{Payload: "p1", Price: 5}, *e.Payment)
		require.NoError(t, tg.Confirm(ctx, e.Press, refusal))
		require.ErrorIs(t, tg.Confirm(ctx, e.Press, refusal), platform.ErrRefused, "it is answered")
		answer, err := fake.Answered(ctx, asked)
		require.NoError(t, err)
		require.Equal(t, refusal, answer.Refusal)
		require.Equal(t, refusal == "", answer.OK)
	}
	paid := <-events
	require.Equal(t, platform.Paid, paid.Kind)
	require.Equal(t, group, paid.Chat)
	require.Equal(t, "7", paid.User.ID)
	require.Equal(t, platform.Payment{Payload: "p1", Price: 5, Charge: fake.Charges()[0].ID}, *paid.Payment)
	require.ErrorIs(t, tg.Refund(ctx, "8", paid.Payment.Charge), platform.ErrRefused)
	for range 2 {
		require.NoError(t, tg.Refund(ctx, "7", paid.Payment.Charge), "twice is as good as once")
	}
	require.True(t, fake.Charges()[0].Refunded)
	require.ErrorIs(t, tg.Refund(ctx, "7", "another"), platform.ErrRefused)
}

// Other currencies are none of ours, and no prices are above the bound.
func TestOtherPayments(t *testing.T) {
	t.Parallel()
	tg, _ := newTelegram(t, fakebot.Options{}, Options{})
	for _, body := range []string{
		`"pre_checkout_query": {"id": "q", "from": {"id": 7, "is_bot": false, "first_name": "A"}, "currency": "EUR", "total_amount": 500, "invoice_payload": "p"}`,
		`"message": {"message_id": 1, "date": 1, "chat": {"id": 7, "type": "private"}, "from": {"id": 7, "is_bot": false, "first_name": "A"},
			"successful_payment": {"currency": "EUR", "total_amount": 500, "invoice_payload": "p", "telegram_payment_charge_id": "c", "provider_payment_charge_id": "d"}}`,
	} {
		list := tg.decode([]json.RawMessage{json.RawMessage(`{"update_id": 1, ` + body + `}`)})
		_, ok := tg.event(list[0])
		require.False(t, ok)
	}
	_, err := tg.Send(t.Context(), home, platform.Post{Invoice: &platform.Invoice{Title: "x", About: "x", Payload: "p", Price: MaxPrice + 1}})
	require.ErrorIs(t, err, platform.ErrRefused)
}
