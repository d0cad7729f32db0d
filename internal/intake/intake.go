// Package intake reads the bodies of requests within limits: on their size, also
// after decompression; on the JSON values in them; on the time in which they
// arrive; and on the memory that all of them together may need at one time.
//
// A body goes through three stages. While it arrives ([Intake.Guard],
// [Intake.Receive]) it is cheap: short bodies are in a bounded pool of buffers,
// others in a file, and a sender that is too slow is cut off, so that slow
// connections hold next to nothing. When the last byte has arrived, the cost of
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
	"errors"
	"fmt"
	"sync"
	"time"
)

// Errors of a body, besides [TooLargeError].
var (
	// ErrBroken means that the body could not be read: its encoding is damaged or
	// its sender is gone.
	ErrBroken = errors.New("intake: broken body")
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
	ErrBusy = errors.New("intake: too many bodies at once")
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
	// Memory bounds the memory for parsing bodies at one time, in bytes. Default:
	// 512 MiB.
	Memory int64
	// Wait is how long a body waits for memory. Default: 10 s.
	Wait time.Duration
}

// Intake reads the bodies of one process. It is safe for concurrent use.
type Intake struct {
	dir     string
	wait    time.Duration
	gate    *gate
	pace    pace
	buffers pool // memory of arriving bodies
	spooled pool // the same on disk
	arrive  pool // the number of them
}

// New returns an Intake; it opens and starts nothing.
func New(o Options) *Intake {
	if o.Wait <= 0 {
		o.Wait = 10 * time.Second
	}
	in := &Intake{dir: o.Dir, wait: o.Wait, gate: &gate{}}
	in.arrive.resize(maxArriving, shareArriving)
	in.SetMemory(o.Memory)
	return in
}

// SetMemory changes Options.Memory, even while bodies are being read.
func (in *Intake) SetMemory(memory int64) {
	if memory <= 0 {
		memory = 512 << 20
	}
	in.gate.resize(memory)
	in.buffers.resize(memory/8, memory/16)
	// Disk space is cheap, but no sender may fill it.
	in.spooled.resize(16*memory, 8*memory)
}

// pool is a shared amount: nobody waits for it, and no sharer gets more than a
// part.
type pool struct {
	mu    sync.Mutex
	limit int64
	each  int64
	used  int64
	of    map[string]int64
}

func (p *pool) resize(limit, each int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit, p.each = limit, each
}

// take reserves n more for a sharer and reports whether it succeeded.
func (p *pool) take(share string, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used+n > p.limit || p.of[share]+n > p.each {
		return false
	}
	if p.of == nil {
		p.of = map[string]int64{}
	}
	p.used += n
	p.of[share] += n
	return true
}

// give returns n.
func (p *pool) give(share string, n int64) {
	if n == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= n
	if p.of[share] -= n; p.of[share] <= 0 {
		delete(p.of, share)
	}
}
