// Package platform is the interface between the bridge and a chat platform: what
// users say comes in as an [Event], what the bridge says goes out as a [Post].
//
// Telegram is the first implementation (package telegram), plain HTTP the second
// (package webchat), Discord the third (package discord). Nothing behind this
// interface knows any of them.
package platform

import (
	"context"
	"io"
	"net/http"
	"time"
)

// Platform is one chat platform. Its methods are called concurrently; each makes
// one attempt. Retrying is left to the outbox.
type Platform interface {
	// Name is the name of the platform in keys, tenants and metrics.
	Name() string
	// Listen fetches events until ctx ends. It is called in one process at a time.
	// A platform that calls the bridge instead returns when ctx ends.
	Listen(ctx context.Context, admit Admit) error
	// Routes are the paths under which the platform calls the bridge, served by
	// every process; empty if it does not.
	Routes(admit Admit) map[string]http.Handler
	// Send posts to a chat and returns the ids of the new messages.
	Send(ctx context.Context, to Chat, p Post) ([]string, error)
	// Edit replaces the content of a message of the bridge. The same content again
	// is not an error.
	Edit(ctx context.Context, to Chat, message string, p Post) error
	// Delete removes a message of the bridge. A missing message is not an error, one that
	// is too old to be removed is ErrRefused.
	Delete(ctx context.Context, to Chat, message string) error
	// Answer tells the app of a user who pressed a button that the press was handled, and
	// shows the text unless it is empty.
	Answer(ctx context.Context, press, text string) error
	// Open reads a file that a user sent.
	Open(ctx context.Context, f File) (io.ReadCloser, error)
	// Limits are what the platform allows.
	Limits() Limits
}

// Moderated is a platform whose groups have moderators.
type Moderated interface {
	// Moderates reports whether a user may remove other people's messages in a group.
	Moderates(ctx context.Context, in Chat, user string) (bool, error)
}

// Permitted is a platform that knows what the bridge may send.
type Permitted interface {
	// MayShow returns ErrNoMedia if the bridge may not send what a run makes to a group, and
	// ErrForbidden if it may not write there at all. Any other error says nothing.
	MayShow(ctx context.Context, in Chat, media Media) error
}

// Admit accepts an event. If it returns nil the event is stored and will be
// handled, perhaps by another process; otherwise the platform should deliver it
// again.
type Admit func(ctx context.Context, e Event) error

// Limits are what a platform allows.
type Limits struct {
	// Text and Caption are lengths in UTF-16 units.
	Text, Caption int
	// Photo is the maximum size of what is shown as a picture, File of what can be
	// sent at all, in bytes.
	Photo, File int64
	// Recompresses means that what is shown as a picture loses some quality, its
	// transparency and its animation.
	Recompresses bool
	// Sides is the largest sum of width and height in pixels of what is shown as a
	// picture, Shape the largest ratio between them; 0 means no limit.
	Sides, Shape int
	// Videos are the extensions of the files that play, such as ".mp4"; nil means all.
	Videos []string
	// KnowsPosts means that sending a post with the same ID again makes no second message,
	// so it can be sent until its fate is known.
	KnowsPosts bool
	// KnowsPostsFor is how long a platform with KnowsPosts remembers an ID; 0 means for
	// ever.
	KnowsPostsFor time.Duration
	// InPlace means that people look for the result where they saw the progress: the status
	// message can become the files, up to an album, and doing that twice does no harm.
	InPlace bool
	// Forms means that an event can open a form, see [Forms].
	Forms bool
	// Inline means that people can call the bridge from any chat, see [Inliner].
	Inline bool
	// Covers means that pictures can be hidden behind a spoiler.
	Covers bool
	// Linked means that files are sent as links to the hub, so files that exist only in the
	// bridge cannot be shown.
	Linked bool
	// Album is how many pictures one post can hold.
	Album int
	// MaxPrice is the largest price of an invoice, and CheckoutWithin how soon a Checkout
	// must be answered; 0 if nobody can pay. See [Seller].
	MaxPrice       int64
	CheckoutWithin time.Duration
	// PerSecond is the rate of all calls together; 0 means no limit.
	PerSecond float64
	// ChatEvery is the pause between two messages in one chat.
	ChatEvery time.Duration
	// GroupPerMinute bounds the messages in one group; 0 means no limit.
	GroupPerMinute int
	// EditEvery and GroupEditEvery are the shortest pauses between two edits of one
	// message that only show progress.
	EditEvery, GroupEditEvery time.Duration
}
