// Package intake reads the bodies of requests within limits: on their size, also
// after decompression; on the JSON values in them; on the time in which they
// arrive; and on the memory that all of them together may need at one time.
//
// A body goes through three stages. While it arrives ([Intake.Guard],
// [Intake.Receive]) it is cheap: short bodies are in bounded memory, others in a file,
// both counted by package budget, and a sender that is silent or too slow is cut off,
// so that slow connections hold next to nothing. When the last byte has arrived, the cost of
// parsing the body is known from its size and the number of its values. Only then
// does it wait for its turn to get memory ([Body.Load]). The senders take turns, so
// that many large bodies of one sender delay another sender by at most one body,
// and memory is reserved for small bodies.
//
// Large and compressed bodies of one sender are worked on one at a time, from their
// first part to the answer, and a body that is refused delays the next one of its
// sender.
package intake

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/comfyhub/comfyhub/internal/budget"
)

// Errors of a body, besides [TooLargeError].
var (
	// ErrBroken means that the body could not be read: its encoding is damaged or
	// its sender is gone.
	ErrBroken = errors.New("intake: malformed body")
	// ErrInflated means that a compressed body is a decompression bomb.
	ErrInflated = errors.New("intake: body inflates too much")
	// ErrValues means that a body has too many JSON values.
	ErrValues = errors.New("intake: too many JSON values")
	// ErrDeep means that a body is nested too deeply to be parsed.
	ErrDeep = errors.New("intake: JSON nested too deeply")
	// ErrSlow means that a body arrived too slowly.
	ErrSlow = errors.New("intake: body arrives too slowly")
	// ErrBusy means that too many bodies are being read, or that their memory was
	// not free in time.
	ErrBusy = fmt.Errorf("intake: too many bodies at once: %w", budget.ErrFull)
)

// TooLargeError means that a body is not shorter than its limit.
type TooLargeError struct {
	Limit  int64
	Actual int64 // as far as it is known
}

// Error states both sizes.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("intake: body of %d bytes, the limit is %d", e.Actual, e.Limit)
}

// Options of an Intake. The zero value of each field means its default.
type Options struct {
	// Dir is the folder for bodies while they arrive; it must exist when the first
	// large one does. Default: the system's temporary folder.
	Dir string
	Limits
	// Budget counts what arrives; its limits are set from those above. Default: one of
	// its own.
	Budget *budget.Budget
	// Wait is how long a body waits for memory. Default: 10 s.
	Wait time.Duration
}

// Intake reads the bodies of one process. It is safe for concurrent use.
type Intake struct {
	dir    string
	wait   time.Duration
	gate   *gate
	pace   pace
	budget *budget.Budget
	ahead  windows
}

// New returns an Intake; it opens and starts nothing.
func New(o Options) *Intake {
	if o.Wait <= 0 {
		o.Wait = 10 * time.Second
	}
	in := &Intake{dir: o.Dir, wait: o.Wait, gate: &gate{}, budget: o.Budget}
	if in.budget == nil {
		in.budget = budget.New()
	}
	in.SetLimits(o.Limits)
	return in
}

// Limits are those of the Options that a reload of the configuration may change. The zero
// value of each field means its default.
type Limits struct {
	// Memory bounds the memory for parsing bodies at one time, in bytes. Default:
	// 512 MiB. An eighth as much is for what arrives, a sender's part being a quarter
	// of that.
	Memory int64
	// Disk bounds what arrives on disk, in bytes; half of it is one sender's part.
	// Default: 16 times Memory.
	Disk int64
	// Room tells how much may be written to the disk besides; nil for no such bound.
	Room func() int64
}

// SetLimits changes the limits, even while bodies are being read.
func (in *Intake) SetLimits(l Limits) {
	if l.Memory <= 0 {
		l.Memory = 512 << 20
	}
	if l.Disk <= 0 {
		l.Disk = 16 * l.Memory
	}
	in.gate.resize(l.Memory)
	in.budget.Resize(budget.Memory, l.Memory/8, 4, nil)
	in.budget.Resize(budget.Disk, l.Disk, 2, l.Room)
}

// holder counts what is kept of a request, or in some other way for a share. done gives
// back what is not the request's.
func (in *Intake) holder(ctx context.Context, share string) (h *budget.Holder, done func()) {
	if h := budget.From(ctx); h != nil {
		return h, func() {}
	}
	h = in.budget.Open(share, nil)
	return h, h.Close
}
