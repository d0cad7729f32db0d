package conversation

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// A request that has a price and that the daily share does not cover becomes an order:
//
//  1. sell stores the order, for a day, and sends an invoice. It goes to the chat of the
//     request, as a bot may not start a private chat.
//  2. checkout lets the payment through if the order is unchanged and its author is paying.
//  3. paid records the payment and stores the request in one step. From then on it is a
//     request like any other, and package request decides whether the payment is refunded.
//
// A payment without an order is recorded too, and refunded (refunds.go).

// order is a request that is not paid for yet. Older and newer bridges read its JSON.
type order struct {
	Record request.Record `json:"record"`
	// Token keeps anyone from guessing the payload of the invoice.
	Token string `json:"token"`
	Price int64  `json:"price"`
	// Instead is the request that it replaces, if any.
	Instead string `json:"instead,omitempty"`
	// Shown means that the invoice was sent.
	Shown bool `json:"shown,omitempty"`
}

// confirmTry bounds one attempt to answer a checkout.
const confirmTry = 3 * time.Second

// orderID returns the id of a request's order.
func orderID(id string) string { return request.IDOf("order/" + id) }

// payload is what the invoice carries: the order's id and its token.
func (o *order) payload() string { return orderID(o.Record.ID) + ":" + o.Token }

// shop sells requests: it sends invoices and takes payments.
type shop struct {
	store    *state.Store
	runner   *request.Runner
	guard    *limits.Guard
	platform func(name string) platform.Platform
	contact  string
	logger   *slog.Logger
	voice    *voice
	commands *repertoire
	turns    *turns
}

// price returns the price of a request in Stars if the daily share does not cover it, 0 if
// it is not for sale. Operators never pay.
func (sh *shop) price(tn *turn, c *workflow.Command, args workflow.Args) int64 {
	if sh.contact == "" || sh.guard.Admin(tn.Event) {
		return 0
	}
	return priceOf(c, args)
}

func priceOf(c *workflow.Command, args workflow.Args) int64 {
	return c.Spec.Stars * int64(max(1, args.Count))
}

// create stores a request that is free. A command with a price is free only within a daily
// share.
func (sh *shop) create(ctx context.Context, rec *request.Record, ask state.Ask, price int64) (state.Verdict, error) {
	if price == 0 || ask.Quota > 0 {
		return sh.store.Requests.Create(ctx, rec.ID, rec, ask)
	}
	_, err := sh.runner.Load(ctx, rec.ID)
	switch {
	case err == nil:
		return state.Exists, nil // already paid for
	case !errors.Is(err, state.ErrNotFound):
		return "", err
	}
	live, err := sh.store.Requests.ActiveOf(ctx, ask.Who)
	if err == nil && ask.Waiting > 0 && len(live) >= ask.Waiting {
		return state.Busy, nil
	}
	return state.OverQuota, err
}

// sell stores an order and sends its invoice. shared means that there is a daily share, but
// not enough of it is left.
func (sh *shop) sell(ctx context.Context, tn *turn, c *workflow.Command, rec request.Record, price int64, shared bool) error {
	if _, sells := tn.p.(platform.Seller); !sells {
		return tn.reply(ctx, tn.say("pay_elsewhere", nil))
	}
	if price > tn.p.Limits().MaxPrice {
		return tn.reply(ctx, tn.say("pay_too_much", locale.With{"n": price, "max": tn.p.Limits().MaxPrice}))
	}
	var o order
	err := sh.store.People.Held(ctx, orderID(rec.ID), &o)
	switch {
	case err != nil && !errors.Is(err, state.ErrNotFound):
		return err
	case err != nil, o.Price != price, o.Record.Args.Words() != rec.Args.Words():
		rec.Price, rec.Metered, rec.Paid, rec.Counted = 0, false, price, ""
		o = order{Record: rec, Token: uuid.NewString(), Price: price}
		if tn.instead != nil {
			o.Instead = tn.instead.ID
		}
	case o.Shown:
		return nil // it was sent before the bridge was killed, or a button was pressed twice
	}
	if err := sh.store.People.Hold(ctx, tn.who(), orderID(rec.ID), o); err != nil {
		return err
	}
	if tn.Kind != platform.Pressed {
		if err := sh.store.Put(ctx, request.MessageKind, messageName(tn, tn.Message.ID), rec.ID, request.MessageKeep); err != nil {
			return err
		}
	}
	key := "invoice"
	if shared {
		key = "invoice_share"
	}
	about := sentence(About(c, tn.language))
	if words := rec.Args.Prompt; words != "" {
		about += ": " + words
	}
	ids, err := tn.send(ctx, platform.Post{ReplyTo: rec.Message, Invoice: &platform.Invoice{
		Title: "/" + c.Name, About: tn.say(key, locale.With{"what": about}), Payload: o.payload(), Price: price,
	}})
	if err != nil || len(ids) == 0 {
		return err
	}
	o.Shown = true
	return sh.store.People.Hold(ctx, tn.who(), orderID(rec.ID), o)
}

// sentence begins a text with a capital.
func sentence(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:]
}

// payment handles checkouts and payments. It skips the usual checks: a user who has been
// banned since, or who floods the bot, has still paid.
func (sh *shop) payment(ctx context.Context, e platform.Event) error {
	tn, err := sh.turns.of(ctx, e)
	if err != nil && mayPass(err) {
		return err
	}
	if err != nil {
		// Unreadable settings must not hold up a payment.
		sh.logger.Error("settings cannot be read", "platform", e.Platform, "error", err)
		tn = &turn{Event: e, voice: sh.voice, p: sh.platform(e.Platform)}
		tn.speak()
	}
	seller, sells := tn.p.(platform.Seller)
	switch {
	case !sells:
		return nil
	case e.Kind == platform.Paid:
		return sh.paid(ctx, tn)
	}
	return sh.checkout(ctx, tn, seller)
}

// checkout tells the platform whether a payment may go through. Without an answer in time,
// it does not.
func (sh *shop) checkout(ctx context.Context, tn *turn, seller platform.Seller) error {
	ctx, cancel := context.WithDeadline(ctx, tn.At.Add(tn.p.Limits().CheckoutWithin))
	defer cancel()
	o, refusal, err := sh.orderOf(ctx, tn)
	if err == nil && refusal == "" {
		refusal, err = sh.mayPay(ctx, tn, o)
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // it is too late for any answer
	}
	if err != nil {
		return err
	}
	text := ""
	if refusal != "" {
		text = tn.say(refusal, nil)
	}
	err = retry.New(100*time.Millisecond, time.Second).Do(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, confirmTry)
		defer cancel()
		return seller.Confirm(ctx, tn.Press, text)
	}, func(err error) bool { return !platform.Permanent(err) })
	if err != nil {
		sh.logger.Warn("the question before a payment was not answered", "platform", tn.Platform, "error", err)
	}
	return nil
}

// orderOf returns the order that an event is about, or the key of the text that says why it
// cannot be paid: it may have expired, or be somebody else's.
func (sh *shop) orderOf(ctx context.Context, tn *turn) (o order, refusal string, err error) {
	id, _, _ := strings.Cut(tn.Payment.Payload, ":")
	err = sh.store.People.Held(ctx, id, &o)
	switch {
	case errors.Is(err, state.ErrNotFound):
		return o, "pay_over", nil
	case err != nil:
		return o, "", err
	case o.Token == "" || o.payload() != tn.Payment.Payload || o.Record.Platform != tn.Platform:
		return o, "pay_over", nil
	case o.Record.User.ID != tn.User.ID:
		return o, "not_yours", nil
	case o.Price != tn.Payment.Price:
		return o, "pay_changed", nil
	}
	return o, "", nil
}

// mayPay returns the key of the text that says why an order can no longer be paid, "" if it
// can.
func (sh *shop) mayPay(ctx context.Context, tn *turn, o order) (refusal string, err error) {
	e := tn.Event
	e.Chat = o.Record.Chat // whoever may use the bot in a group may pay for an order there
	standing, err := sh.guard.Standing(ctx, e)
	if err != nil {
		return "", err
	}
	c := sh.commands.byName[o.Record.Command]
	switch {
	case standing != limits.Welcome:
		return "pay_over", nil
	case c == nil || priceOf(c, o.Record.Args) != o.Price:
		return "pay_changed", nil
	}
	_, err = sh.runner.Load(ctx, o.Record.ID)
	switch {
	case err == nil:
		return "pay_over", nil
	case !errors.Is(err, state.ErrNotFound):
		return "", err
	}
	return "", nil
}

// paid records a payment and starts its request. If the bridge is killed on the way, it is
// called again.
func (sh *shop) paid(ctx context.Context, tn *turn) error {
	o, refusal, err := sh.orderOf(ctx, tn)
	switch {
	case mayPass(err):
		return err
	case err != nil:
		refusal = "pay_over" // the order is unreadable, but the payment must not be lost
	}
	charge := state.Charge{
		ID: tn.Payment.Charge, Platform: tn.Platform, Who: tn.who(), User: tn.User.ID, Price: tn.Payment.Price, At: tn.At,
	}
	var stored any
	rec := o.Record
	if refusal == "" {
		rec.Charge, rec.Paid, rec.Asked = charge.ID, charge.Price, time.Now()
		charge.Request, stored = rec.ID, &rec
	}
	paying, err := sh.store.Payments.Pay(ctx, charge, orderID(rec.ID), stored)
	if err != nil {
		return err
	}
	switch paying {
	case state.PaysRequest:
		sh.logger.Info("a request was paid for", "request", rec.ID, "charge", charge.ID)
		return sh.start(ctx, rec, o.Instead, sh.runner.Begin(driving(ctx), rec))
	case state.PaysKnown:
		return sh.paidBefore(ctx, tn, charge.ID)
	case state.PaysNothing:
	}
	sh.logger.Warn("a payment has nothing to pay for and is refunded", "charge", charge.ID)
	return sh.payBack(ctx, tn)
}

// paidBefore picks up a payment that was recorded before the bridge was killed.
func (sh *shop) paidBefore(ctx context.Context, tn *turn, id string) error {
	charge, err := sh.store.Payments.Charge(ctx, id)
	if err != nil {
		return err
	}
	rec, err := sh.runner.Load(ctx, charge.Request)
	switch {
	case errors.Is(err, state.ErrNotFound):
		if charge.Request != "" && charge.State != state.Unsettled {
			return nil // the request is already over and forgotten
		}
		return sh.owe(ctx, tn, charge)
	case err != nil:
		return err
	case rec.Charge != id:
		return sh.owe(ctx, tn, charge) // another payment for the request came first
	}
	told, err := sh.runner.Continue(driving(ctx), rec.ID)
	if err != nil {
		return err
	}
	return sh.start(ctx, rec, "", told)
}

// owe refunds a payment that was recorded before. If the script failed halfway, Redis may
// have neither its request nor the note that it must be refunded.
func (sh *shop) owe(ctx context.Context, tn *turn, charge state.Charge) error {
	if charge.State != state.Refunded {
		if _, err := sh.store.Payments.Settle(ctx, charge, state.Refund, 0); err != nil {
			return err
		}
	}
	return sh.payBack(ctx, tn)
}

// start records which message a paid request belongs to, and waits until the user has been
// told.
func (sh *shop) start(ctx context.Context, rec request.Record, instead string, told <-chan struct{}) error {
	if instead != "" {
		sh.runner.Cancel(instead)
	}
	name := request.MessageName(rec.Platform, rec.Chat.ID, rec.Message)
	if err := sh.store.Put(ctx, request.MessageKind, name, rec.ID, request.MessageKeep); err != nil {
		sh.logger.Warn("cannot note which request a message asked for", "error", err)
	}
	awaitTold(ctx, told)
	return nil
}

// payBack tells the user that the payment came too late and is refunded.
func (sh *shop) payBack(ctx context.Context, tn *turn) error {
	return tn.reply(ctx, tn.say("pay_nothing", nil)+"\n"+tn.say("pay_back", locale.With{"n": tn.Payment.Price}))
}
