package stream

import (
	"container/list"
	"sync"
	"time"
)

// listingTick is the time between two batches of sockets that are told of a
// change.
const listingTick = 100 * time.Millisecond

// audiences are the sockets of each tenant. A web UI shows the jobs of the whole
// tenant and asks for them only when it is sent a status, so a status is due to
// all of them whenever one job of the tenant changes. With thousands of sockets
// and hundreds of changes a second that would be all that a hub does: they are
// told in turns, so many a second, and a socket that missed ten changes hears
// once.
type audiences struct {
	// pace is how many sockets of a tenant are told in a second.
	pace int

	mu  sync.Mutex
	all map[string]*audience
}

type audience struct {
	// version grows with each change.
	version uint64
	// turns has the sockets, the next one to be told at the front.
	turns list.List
	// behind counts those that have not heard of the version.
	behind int
	// resting runs between two batches; nil while nothing happens.
	resting *time.Timer
}

// seat is a socket's place in its tenant's audience.
type seat struct {
	of    *audience
	turn  *list.Element
	heard uint64 // the version that its last status was as new as
}

// join adds a socket, whose first status is still to come.
func (a *audiences) join(tenant string, w *socket) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = make(map[string]*audience)
	}
	of := a.all[tenant]
	if of == nil {
		of = &audience{}
		a.all[tenant] = of
	}
	w.seat = seat{of: of, turn: of.turns.PushBack(w), heard: of.version}
}

// leave takes a socket away.
func (a *audiences) leave(tenant string, w *socket) {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := w.seat.of
	of.turns.Remove(w.seat.turn)
	if w.seat.heard != of.version {
		of.behind--
	}
	if of.turns.Len() == 0 && a.all[tenant] == of {
		if of.resting != nil {
			of.resting.Stop()
		}
		delete(a.all, tenant)
	}
}

// changed notes a change in the jobs of a tenant, of all with "".
func (a *audiences) changed(tenant string) {
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

func (of *audience) changed() {
	if of != nil {
		of.version++
		of.behind = of.turns.Len()
	}
}

// tell lets the sockets of a tenant, of all with "", hear of what has changed,
// the first ones at once.
func (a *audiences) tell(tenant string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if tenant != "" {
		if of := a.all[tenant]; of != nil && of.resting == nil {
			a.batch(of)
		}
		return
	}
	for _, of := range a.all {
		if of.resting == nil {
			a.batch(of)
		}
	}
}

// batch tells some sockets, and comes again after a rest; the lock is held.
func (a *audiences) batch(of *audience) {
	of.resting = nil
	if of.behind == 0 {
		return
	}
	left := max(a.pace*int(listingTick)/int(time.Second), 1)
	for range of.turns.Len() {
		if left == 0 || of.behind == 0 {
			break
		}
		w := of.turns.Front().Value.(*socket)
		of.turns.MoveToBack(w.seat.turn)
		if w.seat.hears(of.version) && !w.silent() {
			w.statusDue()
			left--
		}
	}
	of.resting = time.AfterFunc(listingTick, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if of.turns.Len() > 0 {
			a.batch(of)
		}
	})
}

// hears notes that a socket is told of a version; it reports whether that is
// news.
func (s *seat) hears(version uint64) bool {
	news := s.heard != version && version == s.of.version
	if news {
		s.heard = version
		s.of.behind--
	}
	return news
}

// version is what a status that is made from now on is as new as.
func (a *audiences) version(w *socket) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return w.seat.of.version
}

// heard notes that a socket was sent a status of its own, so that it need not be
// told the same again.
func (a *audiences) heard(w *socket, version uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.seat.hears(version)
}
