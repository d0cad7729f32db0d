// Package intake takes in the bodies of requests within bounds: of their size,
// also of what a compressed body inflates to, of the JSON values in them, of
// the time in which they arrive, and of the memory that all of them together
// may need at one moment.
//
// A body goes through three stages. While it arrives ([Intake.Guard],
// [Intake.Receive]) it is cheap: short ones lie in a bounded pool of buffers,
// the others in a file, and a sender that is too slow is cut off, so that
// connections that only trickle hold next to nothing. What it will cost to read
// is known from its size and the number of its values when the last byte is
// here. Only then is memory taken for it ([Body.Load]), as its turn comes: turns
// go round the senders, so that many large bodies of one sender delay another
// one's by one body at most, and small ones have memory of their own.
//
// Work on large and compressed bodies, from their first part to the answer, is
// done for one body of a sender at a time, and a body that is refused delays
// the next one of its sender.
package intake

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// What can be wrong with a body, beside [TooLargeError].
var (
	// ErrBroken says that the body could not be read: its encoding is damaged
	// or its sender has gone.
	ErrBroken = errors.New("intake: broken body")
	// ErrInflated says that a compressed body is a bomb.
	ErrInflated = errors.New("intake: body inflates too much")
	// ErrValues says that a body has too many JSON values.
	ErrValues = errors.New("intake: too many JSON values")
	// ErrDeep says that a body is nested more deeply than JSON can be parsed.
	ErrDeep = errors.New("intake: JSON nested too deeply")
	// ErrSlow says that a body arrived too slowly.
	ErrSlow = errors.New("intake: body arrives too slowly")
	// ErrBusy says that too many bodies are being read, or that their memory
	// was not free in time.
	ErrBusy = errors.New("intake: too many bodies at once")
)

// TooLargeError says that a body is not shorter than its limit.
type TooLargeError struct {
	Limit  int64
	Actual int64 // as far as it is known
}

// Error tells both sizes.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("intake: body of %d bytes, the limit is %d", e.Actual, e.Limit)
}

// Options of an Intake. The zero value of each means its default.
type Options struct {
	// Dir is the folder for bodies on their way; it must exist when the first
	// large one comes. Default: the system's temporary folder.
	Dir string
	// Memory bounds what reading bodies may take at one moment, in bytes.
	// Default: 512 MiB.
	Memory int64
	// Wait is how long a body waits for memory. Default: 10 s.
	Wait time.Duration
}

// Intake takes in the bodies of one process. It is safe for concurrent use.
type Intake struct {
	dir     string
	wait    time.Duration
	gate    *gate
	pace    pace
	buffers pool // of bodies that arrive, in memory
	spooled pool // the same on disk
	arrive  pool // the number of them
}

// New gives an Intake; it opens and starts nothing.
func New(o Options) *Intake {
	if o.Wait <= 0 {
		o.Wait = 10 * time.Second
	}
	in := &Intake{dir: o.Dir, wait: o.Wait, gate: &gate{}}
	in.arrive.resize(maxArriving, shareArriving)
	in.SetMemory(o.Memory)
	return in
}

// SetMemory changes Options.Memory, also while bodies are being read.
func (in *Intake) SetMemory(memory int64) {
	if memory <= 0 {
		memory = 512 << 20
	}
	in.gate.resize(memory)
	in.buffers.resize(memory/8, memory/16)
	// Disk is cheap, but no sender may fill it.
	in.spooled.resize(16*memory, 8*memory)
}

// pool is an amount that is shared: nobody waits for it, and no sharer gets
// more than a part.
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

// take reports whether a sharer could have n more.
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
