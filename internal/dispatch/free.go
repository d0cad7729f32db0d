package dispatch

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// freeSet holds the connections that have no run and could take one, so that looking for an idle
// instance costs nothing per busy one. The zero value is empty.
type freeSet struct {
	mu    sync.Mutex
	conns map[*connection]struct{}
}

// set adds or removes a connection.
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

// list returns the connections by name.
func (s *freeSet) list() []*connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.conns), func(a, b *connection) int { return cmp.Compare(a.name, b.name) })
}

// changed keeps the connection's place in the sets up to date. Call it after each change of what
// takesJobs reads, under the same lock.
func (conn *connection) changed() {
	if conn.free != nil {
		conn.free.set(conn, conn.takesJobs())
	}
	if conn.next != nil {
		conn.next.set(conn, conn.takesAhead())
		conn.holding.set(conn, conn.ahead != nil)
	}
}

// takesJobs reports whether the connection can take a job. The caller holds the lock.
func (conn *connection) takesJobs() bool {
	return conn.open && conn.current == nil && conn.info != nil
}

// idle describes the connection for Pick; ok is false while it can take no job, and while it shows
// no sign of life.
func (conn *connection) idle() (schedule.Idle, *catalog.Info, bool) {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	if !conn.takesJobs() || !conn.proven() {
		return schedule.Idle{}, nil, false
	}
	return schedule.Idle{Name: conn.name, LastClient: conn.lastClient, Loaded: conn.loaded}, conn.can(), true
}

// usable reports whether the instance may take a job, as far as the fleet knows. A report that
// still shows the run that this hub has just seen end, or an earlier one, is out of date and no
// reason to wait.
func (conn *connection) usable(i fleet.Instance) bool {
	switch i.State {
	case fleet.Idle:
		return true
	case fleet.Busy:
		conn.mu.Lock()
		defer conn.mu.Unlock()
		if i.Report.Job == conn.last.Key {
			return i.Report.Queue <= 1 && i.Report.Job != ""
		}
		// Fences follow Redis's clock, and an instance runs its prompts in order.
		return i.Report.Job != "" && i.Report.Fence < conn.last.Fence
	case fleet.Sick:
		return i.Aside && i.Running == "" && i.Report.Idle() && i.Report.Foreign == 0
	default:
		return false
	}
}
