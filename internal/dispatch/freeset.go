package dispatch

import (
	"cmp"
	"maps"
	"slices"
	"sync"
)

// freeSets are the links that could take a job, so that looking for one costs nothing per busy
// instance.
type freeSets struct {
	// free are those without a run. next are those whose instance could get its next job, holding
	// those whose instance has it already.
	free, next, holding freeSet
}

// freeSet holds links. The zero value is empty.
type freeSet struct {
	mu    sync.Mutex
	conns map[*connection]struct{}
}

// set adds or removes a link.
func (s *freeSet) set(conn *connection, free bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !free:
		delete(s.conns, conn)
	case s.conns == nil:
		s.conns = map[*connection]struct{}{conn: {}}
	default:
		s.conns[conn] = struct{}{}
	}
}

// list returns the links by name.
func (s *freeSet) list() []*connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.conns), func(a, b *connection) int { return cmp.Compare(a.name, b.name) })
}
