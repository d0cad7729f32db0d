package platform

import (
	"context"
	"io"
	"time"
)

// Post is a message from the bridge. Text is plain: no platform interprets markup
// in it, so nothing that a user wrote can become markup.
type Post struct {
	// ID is the same whenever a post is sent again, "" for a new one each time. See
	// Limits.KnowsPosts.
	ID string
	// Text is the caption if there are files.
	Text string
	// ReplyTo is the message that this one replies to, "" for none. If that is gone, it is
	// not an error.
	ReplyTo string
	// Private means that it is only for the person who is replied to. A platform that can
	// hides it from everybody else.
	Private bool
	// Quiet means that nobody needs to be notified of it.
	Quiet bool
	// Press is the press of a button that this answers, as in Event.Press, "" for none.
	Press   string
	Buttons [][]Button
	// Asks means that a reply to this message is expected. Where the platform can, it
	// starts one in the user's app.
	Asks bool
	// Files are shown as an album if there are several.
	Files []Attachment
	// Copy is a message of the bridge that already shows the single file: a platform that
	// can copies it, and falls back to sending the file.
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
	// URL, if not empty, is an http or https URL that the button opens; then there is no
	// Data, and no press. A platform drops a button whose URL it does not accept.
	URL string
	// Share, if not empty, is what the button types after the bridge's name in a chat that the
	// person chooses, see [Inliner]; then there is no Data.
	Share string
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
	// Width and Height are those of a video in pixels, and Length is how long it plays; 0 when
	// unknown.
	Width, Height int
	Length        time.Duration
	// Spoiler means that it is hidden behind a spoiler, if the platform can do that with
	// such a file.
	Spoiler bool
	// Open opens the file from its beginning. Each attempt to send reopens it, so
	// that no file is held in memory.
	Open func(ctx context.Context) (io.ReadCloser, error)
	// Link returns a public URL of the file, for a platform that takes no bytes; nil if
	// there is none.
	Link func(ctx context.Context) (string, error)
}
