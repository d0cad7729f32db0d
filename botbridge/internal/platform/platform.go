// Package platform is the door between the bridge and a chat platform: what
// people say comes in as [Event], what the bridge says goes out as [Post].
//
// Telegram is the first implementation (package telegram), a plain HTTP one
// the second (package webchat). Nothing behind this door knows either.
package platform

import (
	"context"
	"io"
	"net/http"
	"time"
)

// Platform is one chat platform. Its methods are called by several goroutines;
// each does one attempt and retries nothing, which is the outbox's work.
type Platform interface {
	// Name is the word for the platform in keys, tenants and metrics.
	Name() string
	// Listen brings events in by asking for them, until ctx ends. It is called
	// in one process at a time. A platform that is called instead returns when
	// ctx ends.
	Listen(ctx context.Context, admit Admit) error
	// Routes are the paths under which the platform calls the bridge, served by
	// every process; empty when it does not.
	Routes(admit Admit) map[string]http.Handler
	// Send posts to a chat and returns the ids of the new messages.
	Send(ctx context.Context, to Chat, p Post) ([]string, error)
	// Edit replaces what a message of the bridge says. Saying the same again is
	// no error.
	Edit(ctx context.Context, to Chat, message string, p Post) error
	// Delete removes a message of the bridge. One that is gone is no error.
	Delete(ctx context.Context, to Chat, message string) error
	// Answer ends the waiting of the person who pressed a button; an empty text
	// shows nothing.
	Answer(ctx context.Context, press, text string) error
	// Open reads a file that a person sent.
	Open(ctx context.Context, f File) (io.ReadCloser, error)
	// Limits are what the platform allows.
	Limits() Limits
}

// Admit takes an event in. When it returns nil the event is stored and will be
// handled, also by another process; else the platform should bring it again.
type Admit func(ctx context.Context, e Event) error

// Limits are what a platform allows.
type Limits struct {
	// Text and Caption are lengths in UTF-16 units, as Telegram counts.
	Text, Caption int
	// Photo is what is shown as a picture at most, File what can be sent at
	// all, in bytes.
	Photo, File int64
	// Album is how many pictures one post can hold.
	Album int
	// PerSecond is the rate of all calls together; 0 means no limit.
	PerSecond float64
	// ChatEvery is the pause between two messages in one chat.
	ChatEvery time.Duration
	// GroupPerMinute bounds the messages in one group; 0 means no limit.
	GroupPerMinute int
	// EditEvery and GroupEditEvery are the least pauses between two edits of
	// one message that only show progress.
	EditEvery, GroupEditEvery time.Duration
}
