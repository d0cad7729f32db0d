package files

import (
	"context"
	"sync"
)

// perUplink bounds the copies from one machine at one time. More of them would not make its line
// faster.
const perUplink = 4

// slots bound the copies that run at one time. A machine with a slow line gets few of them, so that
// it holds up only its own files: the first copy of each machine may take any slot, further ones
// only the first half.
type slots struct {
	most int

	mu      sync.Mutex
	used    int
	byLine  map[string]int
	waiting []*slotWaiter // in order of arrival
}

type slotWaiter struct {
	line  string
	given chan struct{} // closed when the slot is the waiter's
}

func newSlots(most int) *slots { return &slots{most: most, byLine: map[string]int{}} }

// enter waits for a slot for a copy over a line. The caller must call leave, unless
// there is an error, which is the context's.
func (s *slots) enter(ctx context.Context, line string) (leave func(), err error) {
	w := &slotWaiter{line: line, given: make(chan struct{})}
	s.mu.Lock()
	s.waiting = append(s.waiting, w)
	s.hand()
	s.mu.Unlock()
	select {
	case <-w.given:
		return func() { s.leave(line) }, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, other := range s.waiting {
		if other == w {
			s.waiting = append(s.waiting[:n], s.waiting[n+1:]...)
			return nil, ctx.Err()
		}
	}
	s.free(line) // it was given at the same moment
	return nil, ctx.Err()
}

// tryEnter is enter for a copy that does not wait. It takes no slot away from those that do: they
// are waiting because they cannot have it.
func (s *slots) tryEnter(line string) (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fits(line) {
		return nil, false
	}
	s.take(line)
	return func() { s.leave(line) }, true
}

func (s *slots) leave(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free(line)
}

// free takes a slot back. The caller holds the lock.
func (s *slots) free(line string) {
	s.used--
	if s.byLine[line]--; s.byLine[line] == 0 {
		delete(s.byLine, line)
	}
	s.hand()
}

// hand gives free slots to those who may have one, in order of arrival. The caller
// holds the lock.
func (s *slots) hand() {
	left := s.waiting[:0]
	for _, w := range s.waiting {
		if !s.fits(w.line) {
			left = append(left, w)
			continue
		}
		s.take(w.line)
		close(w.given)
	}
	clear(s.waiting[len(left):])
	s.waiting = left
}

func (s *slots) take(line string) {
	s.used++
	s.byLine[line]++
}

func (s *slots) fits(line string) bool {
	switch own := s.byLine[line]; {
	case own == 0:
		return s.used < s.most
	default:
		return own < perUplink && s.used < max(s.most/2, 1)
	}
}
