package platform

import "context"

// Seller is a platform on which people can pay; its Limits say how much. An invoice is a
// [Post], and what people do with it comes in as [Checkout] and [Paid].
type Seller interface {
	// Confirm answers a Checkout, given its Press; without an answer nothing is paid. An
	// empty refusal lets the payment through, any other is shown to the person.
	Confirm(ctx context.Context, checkout, refusal string) error
	// Refund refunds a payment to the user who made it. One that has been refunded before
	// is not an error.
	Refund(ctx context.Context, user, charge string) error
}

// Invoice asks for a payment.
type Invoice struct {
	// Title and About say what the payment is for.
	Title, About string
	// Payload comes back with each Payment: at most 128 bytes, not shown to anybody.
	Payload string
	// Price is in the platform's own currency.
	Price int64
}

// Payment is the payment that an event is about. It comes from the platform itself, not
// from a user's app.
type Payment struct {
	// Payload and Price are those of the invoice.
	Payload string `json:"payload"`
	Price   int64  `json:"price"`
	// Charge is the id of a payment that was made, "" before that.
	Charge string `json:"charge,omitempty"`
}
