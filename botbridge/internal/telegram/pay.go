package telegram

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// MaxPrice is the largest price in Stars of an invoice. The Bot API states no bound for
// sendInvoice; this is the one of its subscriptions.
const MaxPrice = 10_000

const (
	// stars is the currency of digital goods.
	stars = "XTR"
	// checkoutWithin is a little less than the 10 s in which a pre_checkout_query must be
	// answered.
	checkoutWithin = 9 * time.Second
	maxTitle       = 32
	maxDescription = 255
	maxRefusal     = 200
)

var _ platform.Seller = (*Telegram)(nil)

// sendInvoice sends an invoice. Because of the start parameter a forwarded copy leads to
// the bot, and cannot be paid.
func (t *sender) sendInvoice(ctx context.Context, seen *attempt, to platform.Chat, p platform.Post) ([]string, error) {
	title := platform.Clip(p.Invoice.Title, maxTitle)
	m, err := t.bot.SendInvoice(ctx, &bot.SendInvoiceParams{
		ChatID: to.ID, MessageThreadID: number(to.Topic), Title: title, Description: platform.Clip(p.Invoice.About, maxDescription),
		Payload: p.Invoice.Payload, Currency: stars, Prices: []models.LabeledPrice{{Label: title, Amount: int(p.Invoice.Price)}},
		StartParameter: "pay", ReplyParameters: reply(p),
	})
	if err := seen.explain(err); err != nil {
		return nil, err
	}
	return []string{t.numbers.posted(to, m.ID, "")}, nil
}

// Confirm implements platform.Seller.
func (t *sender) Confirm(ctx context.Context, checkout, refusal string) error {
	ctx, seen := observed(ctx)
	_, err := t.bot.AnswerPreCheckoutQuery(ctx, &bot.AnswerPreCheckoutQueryParams{
		PreCheckoutQueryID: checkout, OK: refusal == "", ErrorMessage: platform.Clip(refusal, maxRefusal),
	})
	return seen.explain(err)
}

// Refund implements platform.Seller.
func (t *sender) Refund(ctx context.Context, user, charge string) error {
	id, err := strconv.ParseInt(user, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: a user without a number", platform.ErrRefused)
	}
	ctx, seen := observed(ctx)
	_, err = t.bot.RefundStarPayment(ctx, &bot.RefundStarPaymentParams{UserID: id, TelegramPaymentChargeID: charge})
	if err != nil && strings.Contains(err.Error(), "CHARGE_ALREADY_REFUNDED") {
		return nil
	}
	return seen.explain(err)
}

// checkout converts the question before a payment. Telegram does not say in which chat the
// invoice is.
func checkout(e platform.Event, q *models.PreCheckoutQuery) (platform.Event, bool) {
	if q.From == nil || q.Currency != stars {
		return e, false
	}
	e.Kind, e.User, e.Press, e.At = platform.Checkout, user(q.From), q.ID, time.Now()
	e.Chat.ID = e.User.ID
	e.Payment = &platform.Payment{Payload: q.InvoicePayload, Price: int64(q.TotalAmount)}
	return e, true
}

// paid converts a payment, which comes as a message in the chat of the invoice.
func paid(e platform.Event, m *models.Message) (platform.Event, bool) {
	p := m.SuccessfulPayment
	if m.From == nil || p.Currency != stars {
		return e, false
	}
	e.Kind, e.User, e.Chat, e.At = platform.Paid, user(m.From), chat(m), time.Unix(int64(m.Date), 0)
	e.Message.ID = strconv.Itoa(m.ID)
	e.Payment = &platform.Payment{Payload: p.InvoicePayload, Price: int64(p.TotalAmount), Charge: p.TelegramPaymentChargeID}
	return e, true
}
