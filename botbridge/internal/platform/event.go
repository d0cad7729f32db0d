package platform

import "time"

// Kind is what has happened.
type Kind string

const (
	// Said is a new message.
	Said Kind = "said"
	// Edited is a message that its author has changed.
	Edited Kind = "edited"
	// Pressed is a pressed button under a message of the bridge.
	Pressed Kind = "pressed"
	// Queried are words that a user types after the bridge's name in any chat, before they are
	// sent. Its Press has to be answered within seconds, see [Inliner]; its Chat is the private
	// one.
	Queried Kind = "queried"
	// Left means that the bridge may no longer write to a chat: it was blocked, or removed
	// from the group.
	Left Kind = "left"
	// Moved means that a group has a new id: Event.To.
	Moved Kind = "moved"
	// Checkout asks whether somebody may pay an invoice. Its Press has to be answered, see
	// [Seller].
	Checkout Kind = "checkout"
	// Paid is a payment that was made.
	Paid Kind = "paid"
)

// Event is one thing that a user did. It is stored as JSON before it is handled,
// and older and newer bridges read its field names.
type Event struct {
	// ID is unique on its platform; an event that arrives twice is handled once.
	ID       string  `json:"id"`
	Platform string  `json:"platform"`
	Kind     Kind    `json:"kind"`
	Chat     Chat    `json:"chat"`
	User     User    `json:"user"`
	Message  Message `json:"message"`
	// Addressed means that a message in a group names the bridge.
	Addressed bool `json:"addressed,omitempty"`
	// Press and Data belong to a button: the id to answer, and the button's data. Press
	// is also the id of a Checkout and of a Queried.
	// Data comes from the user's program and may be forged.
	Press string `json:"press,omitempty"`
	Data  string `json:"data,omitempty"`
	// Filled are the texts of the form that the press opened, by field name; nil if it
	// opened none.
	Filled map[string]string `json:"filled,omitempty"`
	At     time.Time         `json:"at"`
	// To is the new id of a chat that has Moved.
	To string `json:"to,omitempty"`
	// Payment belongs to Checkout and Paid.
	Payment *Payment `json:"payment,omitempty"`
}

// Key names the event across all platforms.
func (e Event) Key() string { return e.Platform + "/" + e.ID }

// Chat is where people talk.
type Chat struct {
	ID string `json:"id"`
	// Topic is the thread of a group that has topics.
	Topic string `json:"topic,omitempty"`
	// Group means that others can read it.
	Group bool `json:"group,omitempty"`
}

// User is who talks.
type User struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	// Language is an IETF tag such as "ru" or "en-GB", "" when unknown.
	Language string `json:"language,omitempty"`
}

// Message is what was said.
type Message struct {
	ID    string `json:"id"`
	Text  string `json:"text,omitempty"`
	Files []File `json:"files,omitempty"`
	// Album is the same for all messages of one album.
	Album   string   `json:"album,omitempty"`
	ReplyTo *Message `json:"reply_to,omitempty"`
}

// The types of what its sender does not take for a file.
const (
	Voice   = "application/x-voice" // also a round video
	Sticker = "application/x-sticker"
)

// File is something that a person sent.
type File struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	// Type is a media type such as "image/png", "" when unknown; or Voice or Sticker.
	Type string `json:"type,omitempty"`
	// Size is in bytes, 0 when unknown.
	Size int64 `json:"size,omitempty"`
}
