package telegram

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// From the invoice to the refund, in a topic of a group, by polls and by calls.
func TestPayments(t *testing.T) {
	t.Parallel()
	for _, hook := range []bool{false, true} {
		t.Run(fmt.Sprint("webhook ", hook), func(t *testing.T) { t.Parallel(); payments(t, hook) })
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
	go func() { defer close(listened); _ = tg.Listen(ctx, admit) }()
	defer func() { cancel(); <-listened }()
	group := platform.Chat{ID: "-9", Topic: "4", Group: true}
	fake.SetTopic(-9, 4, true)
	send := func() int {
		ids := must.Get(tg.Send(ctx, group, platform.Post{Invoice: &platform.Invoice{
			Title: "/" + strings.Repeat("x", 40), About: strings.Repeat("ы", 300), Payload: "p1", Price: 5,
		}}))(t)
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
		answer := must.Get(fake.Answered(ctx, asked))(t)
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
	tg, _ := parallel(t, fakebot.Options{}, Options{})
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

// swallower passes bytes on to a server, until it is told to swallow: connections of
// before then stay open and say nothing any more.
type swallower struct {
	net.Listener
	to string

	mu     sync.Mutex
	silent []chan struct{}
}

func (s *swallower) serve() {
	for {
		from, err := s.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", s.to)
		if err != nil {
			from.Close()
			continue
		}
		silence := make(chan struct{})
		s.mu.Lock()
		s.silent = append(s.silent, silence)
		s.mu.Unlock()
		pass := func(dst io.Writer, src io.Reader) {
			buffer := make([]byte, 32<<10)
			for {
				n, err := src.Read(buffer)
				if err != nil {
					return
				}
				select {
				case <-silence:
				default:
					_, _ = dst.Write(buffer[:n])
				}
			}
		}
		go pass(to, from)
		go pass(from, to)
	}
}

func (s *swallower) swallow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, silence := range s.silent {
		close(silence)
	}
	s.silent = nil
}

// Telegram speaks HTTP/2: all calls share a connection. One that has gone silent must
// not swallow every call that comes after.
func TestSilentConnectionIsLeft(t *testing.T) {
	t.Parallel()
	fake := fakebot.New(fakebot.Options{})
	defer fake.Close()
	server := httptest.NewUnstartedServer(fake)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	between := &swallower{Listener: listener, to: server.Listener.Addr().String()}
	defer between.Close()
	go between.serve()

	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
	tg := must.Get(New(Options{
		Token: fakebot.Token, Server: "https://" + listener.Addr().String(), HTTP: transport, Probe: 500 * time.Millisecond,
	}))(t)
	defer tg.Close()
	must.Get(tg.Send(t.Context(), home, platform.Post{Text: "one"}))(t)
	between.swallow()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := tg.Send(ctx, home, platform.Post{Text: "two"})
		return err == nil
	}, time.Minute, 10*time.Millisecond, "a new connection is opened")
}

// A button opens an address. One that Telegram does not take costs nobody the message.
func TestLinks(t *testing.T) {
	tg, fake := parallel(t, fakebot.Options{}, Options{})
	row := []platform.Button{{Label: "Again", Data: "ag"}, {Label: "Help", URL: "https://example.com/help"}}
	for _, address := range []string{"http://localhost:8188/x", "tg://user?id=1", "javascript:alert(1)", "http://[", "https://"} {
		row = append(row, platform.Button{Label: "Odd", URL: address})
	}
	must.Get(tg.Send(t.Context(), home, platform.Post{Text: "one", Buttons: [][]platform.Button{row}}))(t)
	require.Equal(t, []fakebot.Button{{Label: "Again", Data: "ag"}, {Label: "Help", URL: "https://example.com/help"}}, fake.Person(7, "").All()[0].Buttons)
}
