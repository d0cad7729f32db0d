package stream

import (
	"bytes"
	"slices"
	"time"
)

// askAgainAfter is how long the answer to a peerResend may take.
const askAgainAfter = time.Second

// missedHeartbeats is how many heartbeats of a source may be missing before it is
// asked.
const missedHeartbeats = 3

// source is another hub with runs of a client that this hub owns.
type source struct {
	hub string
	// session is the current session; next is the number of its next message.
	session uint64
	next    uint64
	// broken means that messages of the session are missing, or that the hub was
	// presumed dead. Only a new session counts.
	broken bool
	asked  time.Time
	heard  time.Time // when the last message arrived
	runs   map[uint64]*remoteRun
}

// remoteRun is a run of another hub.
type remoteRun struct {
	id       uint64
	hub      string
	job      string
	sequence *sequence
	session  uint64    // the last session that named it
	last     uint64    // the newest message that has arrived
	end      []Message // the messages that will close it
	// outdated runs are not shown: the job has a newer run, or its end has already been told.
	outdated bool
	// received means that the client has confirmed all of it.
	received bool
	// lost is set when the hub was presumed dead.
	lost bool
}

// remotes are the runs of other hubs for a client that this hub owns: what has arrived of each is in
// the client's line, once and in its order. The client's lock guards them.
type remotes struct {
	line    *line
	fences  *fences
	sources map[string]*source
}

// unconfirmed reports whether the end of a job is kept because the client has not
// confirmed it.
func (m *remotes) unconfirmed(job string) bool {
	q := m.line.lists.of(job)
	return job != "" && q != nil && q.over
}

// replaced returns the runs of a job whose end was told without them. The client has that end now.
func (m *remotes) replaced(job string) (runs []*remoteRun) {
	for _, src := range m.sources {
		for _, r := range src.runs {
			if job != "" && r.job == job && r.outdated {
				runs = append(runs, r)
			}
		}
	}
	return runs
}

// receivedElsewhere drops what the client has received from its former owner.
func (m *remotes) receivedElsewhere(job string) {
	m.fences.received(job)
	m.line.drop(func(q *sequence) bool {
		if q.job != job || q.open && m.line.to.out != nil {
			return false // it is being shown
		}
		if r := q.remote; r != nil {
			r.outdated, r.received = true, q.over
			return true
		}
		return q.over
	})
}

// decision is what to do with a message from another hub.
type decision int

const (
	accept decision = iota
	ignore
	gap // earlier messages are missing
)

// judge decides what to do with peerEvents before any of them is applied.
func (m *remotes) judge(l *peerMessage, owner int64) decision {
	if l.owner < owner {
		return ignore // the client has a newer owner
	}
	src := m.sources[l.from]
	if src == nil {
		src = &source{hub: l.from, runs: map[uint64]*remoteRun{}}
		if m.sources == nil {
			m.sources = map[string]*source{}
		}
		m.sources[l.from] = src
	}
	switch {
	case l.session < src.session:
		return ignore
	case l.session > src.session:
		src.session, src.next, src.broken = l.session, 0, l.number != 0
	case l.number < src.next:
		return ignore
	case l.number > src.next:
		src.broken = true
	}
	if src.broken {
		return gap
	}
	return accept
}

// spoil marks a session as broken, so that it is requested again.
func (m *remotes) spoil(l *peerMessage) {
	if src := m.sources[l.from]; src != nil && src.session == l.session {
		src.broken = true
	}
}

// apply handles an accepted message. It returns the runs that the sender should be told are
// received, and whether the sender has handed over everything.
func (m *remotes) apply(l *peerMessage) (received []uint64, synced bool) {
	src := m.sources[l.from]
	src.next, src.heard = l.number+1, time.Now()
	for i := range l.events {
		e := &l.events[i]
		r := src.runs[e.id]
		switch e.kind {
		case runBegin:
			m.begin(src, e)
		case runFrame:
			m.frame(r, e)
		case runEnd:
			if !m.end(r, e.told) {
				received = append(received, e.id)
			}
		case runLost:
			m.lost(r)
			delete(src.runs, e.id)
		case runSynced:
			for _, job := range e.jobs {
				m.receivedElsewhere(job)
			}
			m.synced(src, e.floor)
			synced = true
		case runHeartbeat:
			received = append(received, src.confirmed(e.floor)...)
		}
	}
	return received, synced
}

func (m *remotes) begin(src *source, e *runEvent) {
	r := src.runs[e.id]
	if r == nil {
		r = &remoteRun{id: e.id, hub: src.hub}
		src.runs[e.id] = r
	} else if !r.lost {
		r.session = src.session
		return // it continues where it was
	}
	*r = remoteRun{id: e.id, hub: src.hub, job: e.job, session: src.session}
	if r.outdated = m.unconfirmed(e.job) || !m.fences.enter(m.line, e.job, e.fence); r.outdated {
		return
	}
	r.sequence = &sequence{prompt: e.prompt, job: e.job, fence: e.fence, at: e.at, remote: r}
	m.line.lists.enter(r.sequence)
	m.line.advance(false)
}

// frame handles a message of a run. Here and below, r may be nil: events of
// an unknown run are ignored.
func (m *remotes) frame(r *remoteRun, e *runEvent) {
	if r == nil || r.outdated || e.n <= r.last {
		return
	}
	r.last = e.n
	message := e.message
	message.Data = bytes.Clone(message.Data) // it must not keep the whole peer message in memory
	if e.final {
		r.end = append(r.end, message)
		return
	}
	m.line.send(r.sequence, message)
}

// end closes a run. It returns false if the client already has it or needs nothing more of
// it.
func (m *remotes) end(r *remoteRun, told bool) bool {
	if r == nil {
		return true
	}
	if r.outdated && m.unconfirmed(r.job) {
		return true // its hub may be the last one with the end if this one dies
	}
	if r.outdated {
		r.received = true
	}
	if r.received {
		return false
	}
	if q := r.sequence; told {
		q.told, q.toldHere, q.read = true, true, true
	}
	m.line.end(r.sequence, r.end)
	r.end = nil
	return true
}

func (m *remotes) lost(r *remoteRun) {
	if r != nil && !r.outdated {
		m.line.lose(r.sequence)
	}
}

// synced drops runs that the source did not name in its session: it no longer has
// them.
func (m *remotes) synced(src *source, floor uint64) {
	for id, r := range src.runs {
		if r.session == src.session {
			continue
		}
		m.lost(r)
		delete(src.runs, id)
	}
	src.confirmed(floor)
}

// confirmed returns the runs that the client has received and whose source does not
// know that yet. It forgets those that the source has forgotten.
func (src *source) confirmed(floor uint64) (ids []uint64) {
	for id, r := range src.runs {
		switch {
		case !r.received:
		case id < floor:
			delete(src.runs, id)
		default:
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// hubDied gives up the runs of a hub that is no longer alive. Runs that have ended
// are complete and stay.
func (m *remotes) hubDied(hub string) {
	src := m.sources[hub]
	if src == nil {
		return
	}
	src.broken = true // if it returns, everything is requested again
	for _, r := range src.runs {
		if r.sequence != nil && !r.sequence.over {
			m.line.lose(r.sequence)
			r.lost = true
		}
	}
}

// silent reports whether a source has missed its heartbeats although, as far as is known here, it
// has a run in progress.
func (src *source) silent() bool {
	if time.Since(src.heard) < missedHeartbeats*heartbeatInterval {
		return false
	}
	for _, r := range src.runs {
		if r.sequence != nil && !r.sequence.over {
			return true
		}
	}
	return false
}

// drop forgets the runs of other hubs: the owner has changed, and their hubs
// send them to the new one.
func (m *remotes) drop() {
	m.line.drop(func(q *sequence) bool { return q.remote != nil })
	m.sources = nil
}
