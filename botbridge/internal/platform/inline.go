package platform

import "context"

// Inliner is a platform on which people can call the bridge from any chat, also from those that
// it is not in: what they type comes in as [Queried]. Its Limits say whether that is on.
type Inliner interface {
	// Offer answers a Queried event, given its Press. It returns ErrGone if the picture to
	// offer cannot be offered any more; another offer may follow then.
	Offer(ctx context.Context, query string, o Offer) error
}

// Offer is what people are shown above the words that they type; nothing if it is empty.
type Offer struct {
	// Label is that of a button which leads to the private chat with the bridge, and has them
	// send "/start" and Start there: 1 to 64 letters, digits, "-" and "_".
	Label, Start string
	// Shown is a message of the bridge with a picture, to be sent where they are.
	Shown *Original
}
