package platform

import (
	"context"
	"io"
)

// Post is a message from the bridge. Text is plain: no platform interprets markup
// in it, so nothing that a user wrote can become markup.
type Post struct {
	// ID is the same whenever the same post is sent again, "" for a new one each
	// time. See Limits.KnowsPosts.
	ID string
	// Text is the caption if there are files.
	Text string
	// ReplyTo is the message that this one answers, "" for none. A missing message
	// is not an error.
	ReplyTo string
	// Private means that it concerns only the person who is answered. A platform that
	// can hides it from all others.
	Private bool
	// Press is the press of a button that this answers, as in Event.Press, "" for none.
	Press   string
	Buttons [][]Button
	// Asks means that an answer to this message is wanted. A platform that can begins one.
	Asks bool
	// Files are shown as an album if there are several.
	Files []Attachment
	// Copy is a message of the bridge that shows the single file already: a platform that
	// can copies it, and sends the file if that does not work.
	Copy *Original
	// Invoice makes the post a request for a payment, without text, buttons and files. Only
	// a Seller gets one.
	Invoice *Invoice
}

// Original is a message of the bridge.
type Original struct{ Chat, Message string }

// Button is shown under a message.
type Button struct {
	Label string
	// Data is returned when the button is pressed: at most 64 bytes.
	Data string
	// URL, if not empty, is an http or https address that the button opens; there is no
	// Data then, and no press. A platform leaves a button out whose address it does not take.
	URL string
}

// Media is how a file is shown.
type Media string

const (
	// Photo is shown as a picture, recompressed by the platform.
	Photo Media = "photo"
	// Video plays.
	Video Media = "video"
	// Animation plays silently in a loop.
	Animation Media = "animation"
	// Audio is music with a player.
	Audio Media = "audio"
	// Document is an unchanged file.
	Document Media = "document"
)

// Attachment is a file to send.
type Attachment struct {
	Name  string
	Media Media
	// Size is in bytes, 0 when unknown.
	Size int64
	// Spoiler means that it is covered until somebody wants to see it, as far as the
	// platform can cover a file of that kind.
	Spoiler bool
	// Open opens the file from its beginning. Each attempt to send reopens it, so
	// that no file is held in memory.
	Open func(ctx context.Context) (io.ReadCloser, error)
	// Link returns a URL from which anybody can fetch the file, for a platform that
	// accepts no bytes. nil if there is none.
	Link func(ctx context.Context) (string, error)
}
