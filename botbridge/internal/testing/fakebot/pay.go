package fakebot

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// checkoutWithin is how soon a pre_checkout_query must be answered, as documented.
const checkoutWithin = 10 * time.Second

// Invoice is what a message of kind "invoice" asks for.
type Invoice struct {
	Title, Description, Payload, Start string
	Stars                              int
}

// Checkout is somebody's attempt to pay an invoice.
type Checkout struct {
	ID string
	// OK and Refusal are the bot's answer, once it is Answered in time.
	Answered, OK bool
	Refusal      string
	// Charge names the payment, once it is made.
	Charge string

	person *Person
	bill   Message
	asked  time.Time
}

// Charge is a payment that was made.
type Charge struct {
	ID       string
	User     int64
	Stars    int
	Refunded bool
	// Refunds counts the calls that would have given it back.
	Refunds int
}

// money is what the fake knows about payments.
type money struct {
	*chats
	checkouts []*Checkout
	charges   []*Charge
}

// sendInvoice holds an invoice in Stars against the documentation: a title of 1-32 and a
// description of 1-255 characters, a payload of 1-128 bytes, exactly one price, no provider
// and no tips.
func (f *money) sendInvoice(c *call, chat int64) (any, *problem) {
	bill := Invoice{Title: c.params["title"], Description: c.params["description"], Payload: c.params["payload"], Start: c.params["start_parameter"]}
	var prices []struct {
		Label  string `json:"label"`
		Amount int    `json:"amount"`
	}
	if err := json.Unmarshal([]byte(c.params["prices"]), &prices); err != nil {
		return nil, refuse("can't parse prices JSON object")
	}
	switch n := len([]rune(bill.Title)); {
	case n < 1 || n > 32:
		return nil, refuse("PRODUCT_TITLE_INVALID")
	case len([]rune(bill.Description)) < 1 || len([]rune(bill.Description)) > 255:
		return nil, refuse("PRODUCT_DESCRIPTION_INVALID")
	case len(bill.Payload) < 1 || len(bill.Payload) > 128:
		return nil, refuse("INVOICE_PAYLOAD_INVALID")
	case c.params["currency"] != "XTR":
		return nil, refuse("CURRENCY_INVALID")
	case c.params["provider_token"] != "":
		return nil, refuse("PAYMENT_PROVIDER_INVALID")
	case len(prices) != 1 || prices[0].Label == "" || prices[0].Amount < 1 || prices[0].Amount > 10_000:
		return nil, refuse("CURRENCY_TOTAL_AMOUNT_INVALID")
	case strings.Trim(bill.Start, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" || len(bill.Start) > 64:
		return nil, refuse("START_PARAM_INVALID")
	}
	bill.Stars = prices[0].Amount
	reply, p := replyOf(f.chats, c, chat)
	if p := cmp.Or(p, noTopic(f.chats, c, chat)); p != nil {
		return nil, p
	}
	m := f.newMessage(chat)
	m.FromBot, m.Kind, m.Topic, m.ReplyTo, m.Invoice = true, "invoice", c.int("message_thread_id"), reply, &bill
	return f.json(m), nil
}

// Pay presses the button of an invoice. The bot is asked first.
func (p *Person) Pay(message int) *Checkout {
	f := p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.find(p.Chat, message)
	if m == nil || m.Invoice == nil {
		return &Checkout{}
	}
	f.fileID++
	q := &Checkout{ID: fmt.Sprintf("checkout%d", f.fileID), person: p, bill: *m, asked: time.Now()}
	f.checkouts = append(f.checkouts, q)
	f.push("pre_checkout_query", map[string]any{
		"id": q.ID, "from": p.json(), "currency": "XTR", "total_amount": m.Invoice.Stars, "invoice_payload": m.Invoice.Payload,
	})
	return q
}

// answerCheckout takes the bot's answer. With a yes the person pays, and the bot is told by
// a message in the chat of the invoice.
func (f *money) answerCheckout(c *call) (any, *problem) {
	defer f.changedNow()
	for _, q := range f.checkouts {
		switch {
		case q.ID != c.params["pre_checkout_query_id"]:
			continue
		case q.Answered || time.Since(q.asked) > checkoutWithin:
			return nil, refuse("query is too old and response timeout expired or query ID is invalid")
		}
		q.Answered, q.OK, q.Refusal = true, c.params["ok"] == "true", c.params["error_message"]
		if !q.OK && q.Refusal == "" {
			q.Answered = false
			return nil, refuse("ERROR_MESSAGE_EMPTY")
		}
		if q.OK {
			f.settle(q)
		}
		return true, nil
	}
	return nil, refuse("query is too old and response timeout expired or query ID is invalid")
}

// settle makes a payment. The caller holds mu.
func (f *money) settle(q *Checkout) {
	q.Charge = fmt.Sprintf("stx-%d", len(f.charges)+1)
	f.charges = append(f.charges, &Charge{ID: q.Charge, User: q.person.ID, Stars: q.bill.Invoice.Stars})
	m := f.newMessage(q.person.Chat)
	m.Kind, m.Topic = "payment", q.bill.Topic
	body := f.json(m)
	delete(body, "caption")
	body["from"] = q.person.json()
	body["successful_payment"] = map[string]any{
		"currency": "XTR", "total_amount": q.bill.Invoice.Stars, "invoice_payload": q.bill.Invoice.Payload,
		"telegram_payment_charge_id": q.Charge, "provider_payment_charge_id": "",
	}
	f.push("message", body)
}

// refund gives a payment back, once.
func (f *money) refund(c *call) (any, *problem) {
	defer f.changedNow()
	for _, charge := range f.charges {
		if charge.ID != c.params["telegram_payment_charge_id"] {
			continue
		}
		if charge.User != c.int64("user_id") {
			return nil, refuse("USER_ID_INVALID")
		}
		if charge.Refunds++; charge.Refunded {
			return nil, refuse("CHARGE_ALREADY_REFUNDED")
		}
		charge.Refunded = true
		return true, nil
	}
	return nil, &problem{status: http.StatusBadRequest, text: "Bad Request: CHARGE_ID_INVALID"}
}

// Charges returns all payments, in order.
func (f *money) Charges() []Charge {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]Charge, 0, len(f.charges))
	for _, c := range f.charges {
		list = append(list, *c)
	}
	return list
}

// Answered waits for the bot's answer to a checkout. One that comes too late is none.
func (f *money) Answered(ctx context.Context, q *Checkout) (Checkout, error) {
	for {
		f.mu.Lock()
		now, changed := *q, f.changed
		f.mu.Unlock()
		if now.Answered {
			return now, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return now, ctx.Err()
		}
	}
}
