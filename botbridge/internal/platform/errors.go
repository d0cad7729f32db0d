package platform

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrUncertain says that a call was sent whole and got no answer: it may
	// have taken effect.
	ErrUncertain = errors.New("the platform did not say whether it took the call")
	// ErrForbidden says that the bridge may not talk there: it was blocked, or
	// removed from the group. Asking again does not help.
	ErrForbidden = errors.New("the platform does not let us talk there")
	// ErrRefused says that the platform understood the call and will never take
	// it.
	ErrRefused = errors.New("the platform refused the call")
	// ErrGone says that the message or the file of the call is not there any more.
	ErrGone = errors.New("gone")
	// ErrSource says that a file to send could not be read to its end; nothing was
	// sent.
	ErrSource = errors.New("the file to send cannot be read")
	// ErrTooLarge says that a file is larger than the platform moves.
	ErrTooLarge = errors.New("the file is too large for the platform")
)

// WaitError says that calls came too fast.
type WaitError struct {
	// After is how long nothing should be sent to that chat.
	After time.Duration
}

func (e *WaitError) Error() string { return fmt.Sprintf("too many calls: wait for %v", e.After) }

// MovedError says that a chat has another id from now on.
type MovedError struct{ To string }

func (e *MovedError) Error() string { return "the chat has moved" }

// Permanent reports whether a call that failed so must not be repeated.
func Permanent(err error) bool {
	for _, e := range []error{ErrForbidden, ErrRefused, ErrGone, ErrTooLarge} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
