package stream

import (
	"container/list"
	"sync"
	"time"
)

// listingTick is the time between two batches of sockets that are sent a status.
const listingTick = 100 * time.Millisecond

// statusFanout sends a status to the sockets of a tenant when one of its jobs
// changes. A web UI shows the jobs of the whole tenant and fetches them only after
// a status, so every socket of the tenant needs one. With thousands of sockets and
// hundreds of changes a second, the hub would do nothing else. The sockets
// therefore take turns, at a limited rate, and a socket that missed ten changes is
// sent one status.
type statusFanout struct {
	// pace is how many sockets of a tenant are sent a status per second.
	pace int

	mu  sync.Mutex
	all map[string]*tenantSockets
}

type tenantSockets struct {
	// version grows with each change.
	version uint64
	// order lists the sockets; the one at the front is next.
	order list.List
	// behind counts the sockets that have not been told of version.
	behind int
	// pause is the timer between two batches; nil when idle.
	pause *time.Timer
}

// fanoutSlot is a socket's place among the sockets of its tenant.
type fanoutSlot struct {
	of    *tenantSockets
	turn  *list.Element
	heard uint64 // the version that its last status reflects
}

// join adds a socket, which has yet to be sent its first status.
func (a *statusFanout) join(tenant string, w *socket) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = make(map[string]*tenantSockets)
	}
	of := a.all[tenant]
	if of == nil {
		of = &tenantSockets{}
		a.all[tenant] = of
	}
	w.slot = fanoutSlot{of: of, turn: of.order.PushBack(w), heard: of.version}
}

// leave removes a socket.
func (a *statusFanout) leave(tenant string, w *socket) {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := w.slot.of
	of.order.Remove(w.slot.turn)
	if w.slot.heard != of.version {
		of.behind--
	}
	if of.order.Len() == 0 && a.all[tenant] == of {
		if of.pause != nil {
			of.pause.Stop()
		}
		delete(a.all, tenant)
	}
}

// changed records a change in the jobs of a tenant, or of all tenants if tenant is
// "".
func (a *statusFanout) changed(tenant string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if tenant != "" {
		a.all[tenant].changed()
		return
	}
	for _, of := range a.all {
		of.changed()
	}
}

func (of *tenantSockets) changed() {
	if of != nil {
		of.version++
		of.behind = of.order.Len()
	}
}

// tell starts sending a status to the sockets of a tenant that has changed, or of
// all tenants if tenant is "". The first batch goes out at once.
func (a *statusFanout) tell(tenant string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if tenant != "" {
		if of := a.all[tenant]; of != nil && of.pause == nil {
			a.batch(of)
		}
		return
	}
	for _, of := range a.all {
		if of.pause == nil {
			a.batch(of)
		}
	}
}

// batch sends a status to some sockets and schedules the next batch. The caller holds the lock.
func (a *statusFanout) batch(of *tenantSockets) {
	of.pause = nil
	if of.behind == 0 {
		return
	}
	left := max(a.pace*int(listingTick)/int(time.Second), 1)
	for range of.order.Len() {
		if left == 0 || of.behind == 0 {
			break
		}
		w := of.order.Front().Value.(*socket)
		of.order.MoveToBack(w.slot.turn)
		if w.slot.told(of.version) && !w.silent() {
			w.statusDue()
			left--
		}
	}
	of.pause = time.AfterFunc(listingTick, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if of.order.Len() > 0 {
			a.batch(of)
		}
	})
}

// told records that a socket has been told of a version. It reports whether the
// version was new to the socket.
func (s *fanoutSlot) told(version uint64) bool {
	news := s.heard != version && version == s.of.version
	if news {
		s.heard = version
		s.of.behind--
	}
	return news
}

// version returns the version that a status made from now on reflects.
func (a *statusFanout) version(w *socket) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return w.slot.of.version
}

// heard records that a socket was sent a status for another reason, so that it is
// not sent the same one twice.
func (a *statusFanout) heard(w *socket, version uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.slot.told(version)
}
