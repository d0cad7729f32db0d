package state

import (
	"context"
	"sync/atomic"
	"time"
)

// termOf is the number of this process's term as the leader; 0 is none.
type termOf struct{ n atomic.Int64 }

func (t *termOf) load() int64 { return t.n.Load() }

// Lead makes a process the leader, or confirms that it still is. It must be called
// again well before the lease ends. term only grows, over all processes.
func (s *Store) Lead(ctx context.Context, owner string) (term int64, leads bool, err error) {
	reply, err := s.run(ctx, leadScript, owner, s.o.Lease.Milliseconds())
	if err != nil {
		return 0, false, err
	}
	if reply[0] != "leads" {
		s.term.n.Store(0)
		return 0, false, nil
	}
	term = number(reply[1])
	s.term.n.Store(term)
	return term, true, nil
}

// Resign lets another process take over at once.
func (s *Store) Resign(ctx context.Context, owner string) error {
	_, err := s.run(ctx, resignScript, owner)
	return err
}

// Lease is how long a process leads without renewing.
func (s *Store) Lease() time.Duration { return s.o.Lease }

// Alone reports that no other process can use this state.
func (s *Store) Alone() bool { return s.db.Embedded() }
