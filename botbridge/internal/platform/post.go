package platform

import (
	"context"
	"io"
)

// Post is what the bridge says. Text is plain: no platform reads markup in it,
// so that nothing a person wrote can become any.
type Post struct {
	// Text is the caption where there are files.
	Text string
	// ReplyTo is the message that this one answers, "" for none. A message
	// that is gone is no error.
	ReplyTo string
	Buttons [][]Button
	// Files are shown as one album when there are several.
	Files []Attachment
}

// Button is shown under a message.
type Button struct {
	Label string
	// Data comes back when it is pressed: at most 64 bytes.
	Data string
}

// Media is how a file is shown.
type Media string

const (
	// Photo is shown as a picture, recompressed by the platform.
	Photo Media = "photo"
	// Video plays.
	Video Media = "video"
	// Animation plays in silence, over and over.
	Animation Media = "animation"
	// Audio is music with a player.
	Audio Media = "audio"
	// Document is a file as it is.
	Document Media = "document"
)

// Attachment is a file to send.
type Attachment struct {
	Name  string
	Media Media
	// Size is in bytes, 0 when unknown.
	Size int64
	// Open reads the file from its beginning. Each attempt to send opens it
	// anew, so that no file is held in memory.
	Open func(ctx context.Context) (io.ReadCloser, error)
	// Link asks for an address from which anybody can fetch the file, for a
	// platform that takes no bytes. nil where there are none.
	Link func(ctx context.Context) (string, error)
}
