package platform

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrUncertain means that a call was sent completely and got no answer: it may
	// have taken effect.
	ErrUncertain = errors.New("the platform did not say whether it took the call")
	// ErrForbidden means that the bridge may not write there: it was blocked, or
	// removed from the group. Repeating does not help.
	ErrForbidden = errors.New("the platform does not let us write there")
	// ErrNoMedia means that the bridge may write there, but not send this kind of file.
	ErrNoMedia = errors.New("the platform does not let us send such files there")
	// ErrRefused means that the platform understood the call and will never accept
	// it.
	ErrRefused = errors.New("the platform refused the call")
	// ErrGone means that the message or the file of the call no longer exists.
	ErrGone = errors.New("gone")
	// ErrSource means that a file to send could not be read completely; nothing was
	// sent.
	ErrSource = errors.New("the file to send cannot be read")
	// ErrTooLarge means that a file is larger than the platform allows.
	ErrTooLarge = errors.New("the file is too large for the platform")
)

// WaitError means that calls came too fast.
type WaitError struct {
	// After is how long nothing should be sent to that chat.
	After time.Duration
}

func (e *WaitError) Error() string { return fmt.Sprintf("too many calls: wait for %v", e.After) }

// MovedError means that a chat has a new id. Its old messages are out of reach there, and
// their ids may be those of others.
type MovedError struct{ To string }

func (e *MovedError) Error() string { return "the chat has moved" }

// Permanent reports whether a call that failed with err must not be repeated.
func Permanent(err error) bool {
	for _, e := range []error{ErrForbidden, ErrNoMedia, ErrRefused, ErrGone, ErrTooLarge} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
