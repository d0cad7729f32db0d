package platform

import (
	"context"
	"time"
)

// Finder is a platform that can be asked whether a message is there, so that a post whose
// answer was lost can be found. The messages of a chat are in order of their ids.
type Finder interface {
	// Newest returns the newest message of a chat, as far as is known, which is older than any
	// that will be posted; "" if none is known. p is what is about to be posted, and after a
	// message that is no newer, "" for none.
	Newest(in Chat, p Post, after string) string
	// Candidates returns the messages of a chat that a lost post may be, the oldest first:
	// those after one and before another that are not known to be something else. Without
	// before, these are the next few, for a post of so many messages. all is false if there
	// are more of them.
	Candidates(in Chat, after, before string, parts int) (list []string, all bool)
	// Is reports whether a message shows a part of a post, counted from 0. A message of the
	// bridge that shows something else of the same kind is made to show it.
	Is(ctx context.Context, in Chat, message string, p Post, part int) (bool, error)
}

// Known reports whether a message is known to be something else than what is looked for.
type Known func(ctx context.Context, message string) (bool, error)

// Recaller is a platform that can be asked for a post when it no longer knows its ID.
type Recaller interface {
	// Recall returns the messages that show a post which was sent to a chat no earlier than
	// since; none if it is not there. It fails with an error that is [Permanent] if that cannot
	// be known.
	Recall(ctx context.Context, in Chat, p Post, since time.Time, known Known) ([]string, error)
}
