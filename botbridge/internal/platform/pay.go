package platform

import "context"

// Seller is a platform on which people can pay; Limits say how much. An invoice is a
// [Post], what people do with it comes in as [Checkout] and [Paid].
type Seller interface {
	// Confirm answers a Checkout, whose Press it is given: nothing is paid without it. An
	// empty refusal lets the payment go on, anything else is shown to the person.
	Confirm(ctx context.Context, checkout, refusal string) error
	// Refund gives a payment back to the user who made it. A payment that has been given
	// back already is not an error.
	Refund(ctx context.Context, user, charge string) error
}

// Invoice asks for a payment.
type Invoice struct {
	// Title and About say what is paid for.
	Title, About string
	// Payload comes back with each Payment: at most 128 bytes, which nobody sees.
	Payload string
	// Price is in the platform's own currency.
	Price int64
}

// Payment is what an event says about money. It comes from the platform itself, not from
// a user's program.
type Payment struct {
	// Payload and Price are those of the invoice.
	Payload string `json:"payload"`
	Price   int64  `json:"price"`
	// Charge names a payment that was made, "" before that.
	Charge string `json:"charge,omitempty"`
}
