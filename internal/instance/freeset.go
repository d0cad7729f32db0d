package instance

import (
	"slices"
	"strings"
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
	mu sync.Mutex
	// conns are sorted by name. It is copied for each change: it is listed more often.
	conns []*Link
}

// set adds or removes a link.
func (s *freeSet) set(conn *Link, free bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.Index(s.conns, conn)
	switch {
	case free && at < 0:
		at, _ = slices.BinarySearchFunc(s.conns, conn, byName)
		s.conns = slices.Insert(slices.Clone(s.conns), at, conn)
	case !free && at >= 0:
		s.conns = slices.Delete(slices.Clone(s.conns), at, at+1)
	}
}

// List returns the links by name. They must not be changed.
func (s *freeSet) List() []*Link {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

func byName(a, b *Link) int { return strings.Compare(a.Name, b.Name) }
