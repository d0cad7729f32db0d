// Package budget counts what is kept for callers while their requests, forms and
// messages arrive: in memory and on disk, for each caller and in all. A byte is
// counted before it is kept, so that no number of connections and no way to leave a
// message unfinished makes a hub hold more than its operator allows.
//
// Whoever keeps something for a caller is a [Holder]. When a pool is short, the holder
// that has waited longest for a caller who has stopped sending is cut off first.
package budget

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrFull means that no more may be kept for somebody, or for everybody.
var ErrFull = errors.New("budget: too much is arriving at once")

// Kind is what is counted.
type Kind int

// The kinds.
const (
	Memory Kind = iota
	Disk
	kinds
)

// Silence is how long a caller may send nothing before it is cut off in favour of
// others, when there is not enough for all.
const Silence = 30 * time.Second

// Budget is what there is of each kind. It is safe for concurrent use.
type Budget struct {
	mu      sync.Mutex
	pools   [kinds]pool
	holders map[*Holder]struct{}
	freed   chan struct{} // closed when something is given back; nil if nobody waits
}

// pool is an amount of which no share gets more than a part.
type pool struct {
	limit, parts, used int64
	of                 map[string]int64
	room               func() int64
}

// fits reports whether a share may have n more, and if not, whether that is because of
// its own part.
func (p *pool) fits(share string, n int64) (ok, own bool) {
	limit := p.limit
	if p.room != nil {
		limit = min(limit, p.used+max(p.room(), 0))
	}
	own = p.of[share]+n > limit/max(p.parts, 1)
	return !own && p.used+n <= limit, own
}

// New returns an empty budget: nothing can be taken before Resize.
func New() *Budget { return &Budget{holders: map[*Holder]struct{}{}} }

// Resize sets how much there is of a kind, of which one share may have one of so many
// parts. room, if not nil, tells how much more there is at the moment, such as the space
// on a disk that others use as well.
func (b *Budget) Resize(kind Kind, limit, parts int64, room func() int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := &b.pools[kind]
	p.limit, p.parts, p.room = limit, parts, room
}

// Used returns how much of a kind is taken.
func (b *Budget) Used(kind Kind) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pools[kind].used
}

// Holder holds bytes for one caller. Everything is given back by Close.
type Holder struct {
	budget *Budget
	share  string

	// Guarded by budget.
	cut     func()
	silent  time.Time // since when the caller is waited for; zero if it is not
	held    [kinds]int64
	relayed bool
	dropped bool
	closed  bool
}

// Open returns a holder for a share, which is a tenant or whoever else must not take
// what belongs to others. cut ends the caller's request or connection; it is called at
// most once, must not wait, and nil means that it cannot be ended.
func (b *Budget) Open(share string, cut func()) *Holder {
	h := &Holder{budget: b, share: share, cut: cut}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holders[h] = struct{}{}
	return h
}

// Take counts n more bytes and reports whether they may be kept. If they may not, the
// holder that has been silent longest, and for Silence at least, is cut off: later
// there is more. A nil holder counts nothing.
func (h *Holder) Take(kind Kind, n int64) bool {
	if h == nil {
		return true
	}
	cut, ok := h.take(kind, n)
	if cut != nil {
		cut()
	}
	return ok
}

// TakeSpare is Take for what can do with less, such as a larger buffer: it is refused where
// the share would have more than a quarter of its part, and cuts off nobody.
func (h *Holder) TakeSpare(kind Kind, n int64) bool {
	if h == nil {
		return true
	}
	b := h.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	p := &b.pools[kind]
	if h.closed || h.dropped {
		return false
	}
	if ok, _ := p.fits(h.share, n); !ok || p.of[h.share]+n > p.limit/max(p.parts, 1)/4 {
		return false
	}
	h.add(kind, n)
	return true
}

// patience is how long Await waits at most: whoever was cut off ends sooner.
const patience = 5 * time.Second

// Await is Take that waits a moment for what silent holders give back, if there are any.
func (h *Holder) Await(ctx context.Context, kind Kind, n int64) bool {
	if h == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		freed := h.budget.whenFreed() // before it is tried, so that nothing is missed
		cut, ok := h.take(kind, n)
		if ok || cut == nil && !h.budget.shedding() {
			return ok
		}
		if cut != nil {
			cut()
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return false
		}
	}
}

func (h *Holder) take(kind Kind, n int64) (cut func(), ok bool) {
	b := h.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	p := &b.pools[kind]
	if h.closed || h.dropped {
		return nil, false
	}
	if ok, own := p.fits(h.share, n); !ok {
		if most := b.longest(kind, h.share, own); most != nil {
			most.dropped = true
			return most.cut, false
		}
		return nil, false
	}
	h.add(kind, n)
	return nil, true
}

// add counts n more bytes.
func (h *Holder) add(kind Kind, n int64) {
	p := &h.budget.pools[kind]
	if p.of == nil {
		p.of = map[string]int64{}
	}
	p.used += n
	p.of[h.share] += n
	h.held[kind] += n
}

// longest returns the holder that has been silent longest, of one share if own is set.
func (b *Budget) longest(kind Kind, share string, own bool) *Holder {
	var most *Holder
	for h := range b.holders {
		if h.cut == nil || h.dropped || h.held[kind] == 0 || h.silent.IsZero() || own && h.share != share {
			continue
		}
		if time.Since(h.silent) >= Silence && (most == nil || h.silent.Before(most.silent)) {
			most = h
		}
	}
	return most
}

// shedding reports whether somebody is being cut off.
func (b *Budget) shedding() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for h := range b.holders {
		if h.dropped {
			return true
		}
	}
	return false
}

func (b *Budget) whenFreed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.freed == nil {
		b.freed = make(chan struct{})
	}
	return b.freed
}

// Give gives back n bytes of a kind.
func (h *Holder) Give(kind Kind, n int64) {
	if h == nil {
		return
	}
	h.budget.mu.Lock()
	defer h.budget.mu.Unlock()
	h.give(kind, min(n, h.held[kind]))
}

func (h *Holder) give(kind Kind, n int64) {
	if n <= 0 {
		return
	}
	b := h.budget
	p := &b.pools[kind]
	h.held[kind] -= n
	p.used -= n
	if p.of[h.share] -= n; p.of[h.share] <= 0 {
		delete(p.of, h.share)
	}
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// Wait says that the holder waits for the caller from now on, Go that it no longer does.
func (h *Holder) Wait() {
	h.budget.mu.Lock()
	defer h.budget.mu.Unlock()
	if h.silent.IsZero() {
		h.silent = time.Now()
	}
}

// Go says that the caller has sent something.
func (h *Holder) Go() {
	h.budget.mu.Lock()
	defer h.budget.mu.Unlock()
	h.silent = time.Time{}
}

// Dropped reports whether the holder was cut off in favour of others.
func (h *Holder) Dropped() bool {
	h.budget.mu.Lock()
	defer h.budget.mu.Unlock()
	return h.dropped
}

// Close gives everything back.
func (h *Holder) Close() {
	h.budget.mu.Lock()
	defer h.budget.mu.Unlock()
	for kind := range kinds {
		h.give(kind, h.held[kind])
	}
	h.closed = true
	delete(h.budget.holders, h)
}
