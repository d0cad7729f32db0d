package instance

import (
	"cmp"
	"maps"
	"slices"
	"sync"
)

// FreeSets are the links that could take a job, so that looking for one costs nothing per busy
// instance.
type FreeSets struct {
	// Free are those without a run. next are those whose instance could get its next job, holding
	// those whose instance has it already.
	Free, Next, Holding freeSet
	// Apart are those without a run to slots of endpoints that cost money: they are in no other set.
	Apart freeSet
}

// freeSet holds links. The zero value is empty.
type freeSet struct {
	mu    sync.Mutex
	conns map[*Link]struct{}
}

// set adds or removes a link.
func (s *freeSet) set(conn *Link, free bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !free:
		delete(s.conns, conn)
	case s.conns == nil:
		s.conns = map[*Link]struct{}{conn: {}}
	default:
		s.conns[conn] = struct{}{}
	}
}

// List returns the links by name.
func (s *freeSet) List() []*Link {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.conns), func(a, b *Link) int { return cmp.Compare(a.Name, b.Name) })
}
