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

// finished is the fence of a job whose end the client has, or is about to be sent.
const finished = int64(^uint64(0) >> 1)

// maxFences bounds how many of a client's jobs are remembered.
const maxFences = 4096

// newest records the fence of a run and reports whether no later run of the job is
// known. Earlier runs are over, whatever their hubs say.
func (c *client) newest(job string, fence int64) bool {
	if job == "" || c.streams.transport == nil {
		return true
	}
	if c.fences[job] > fence {
		return false
	}
	c.noteFence(job, fence)
	for _, q := range slices.Clone(c.line.running) {
		if q.job == job && q.fence < fence {
			c.line.lose(q)
		}
	}
	return true
}

// unconfirmed reports whether the end of a job is kept because the client has not
// confirmed it.
func (c *client) unconfirmed(job string) bool {
	q := c.line.of(job)
	return job != "" && q != nil && q.over
}

// hasEnd reports whether the client has the end of a job, or is about to be sent it.
func (c *client) hasEnd(job string) bool { return job != "" && c.fences[job] == finished }

// replaced returns the runs of a job whose end was told without them. The client has that end now.
func (c *client) replaced(job string) (runs []*remoteRun) {
	for _, src := range c.sources {
		for _, r := range src.runs {
			if job != "" && r.job == job && r.outdated {
				runs = append(runs, r)
			}
		}
	}
	return runs
}

func (c *client) noteFence(job string, fence int64) {
	if job == "" {
		return
	}
	if c.fences == nil || len(c.fences) >= maxFences {
		c.fences = map[string]int64{} // a hub that returns so late is rare
	}
	c.fences[job] = fence
}

// maxRecent bounds the jobs whose receipt is passed on to the client's next owner.
const maxRecent = 64

// noteReceived records that the client has a job's end. The hub that ran the job is
// also told, but the client may move before that hub knows, and its next owner must
// not show the end again.
func (c *client) noteReceived(job string) {
	c.noteFence(job, finished)
	if job == "" || c.streams.transport == nil {
		return
	}
	if slices.Contains(c.recent, job) {
		return
	}
	if len(c.recent) >= maxRecent {
		c.recent = slices.Delete(c.recent, 0, 1)
	}
	c.recent = append(c.recent, job)
}

// receivedElsewhere drops what the client has received from its former owner.
func (c *client) receivedElsewhere(job string) {
	c.noteReceived(job)
	c.line.drop(func(q *sequence) bool {
		if q.job != job || q.open && c.line.out != nil {
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
func (c *client) judge(l *peerMessage) decision {
	if l.owner < c.owner.Number {
		return ignore // the client has a newer owner
	}
	src := c.sources[l.from]
	if src == nil {
		src = &source{hub: l.from, runs: map[uint64]*remoteRun{}}
		if c.sources == nil {
			c.sources = map[string]*source{}
		}
		c.sources[l.from] = src
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

// apply handles an accepted message. It returns the runs that the sender should be told are
// received.
func (c *client) apply(l *peerMessage) (received []uint64) {
	src := c.sources[l.from]
	src.next, src.heard = l.number+1, time.Now()
	for i := range l.events {
		e := &l.events[i]
		r := src.runs[e.id]
		switch e.kind {
		case runBegin:
			c.beginRemote(src, e)
		case runFrame:
			c.remoteFrame(r, e)
		case runEnd:
			if !c.remoteEnd(r, e.told) {
				received = append(received, e.id)
			}
		case runLost:
			c.remoteLost(r)
			delete(src.runs, e.id)
		case runSynced:
			for _, job := range e.jobs {
				c.receivedElsewhere(job)
			}
			c.synced(src, e.floor)
			c.answered(l.from, l.owner)
		case runHeartbeat:
			received = append(received, src.confirmed(e.floor)...)
		}
	}
	return received
}

func (c *client) beginRemote(src *source, e *runEvent) {
	r := src.runs[e.id]
	if r == nil {
		r = &remoteRun{id: e.id, hub: src.hub}
		src.runs[e.id] = r
	} else if !r.lost {
		r.session = src.session
		return // it continues where it was
	}
	*r = remoteRun{id: e.id, hub: src.hub, job: e.job, session: src.session}
	if r.outdated = c.unconfirmed(e.job) || !c.newest(e.job, e.fence); r.outdated {
		return
	}
	r.sequence = &sequence{prompt: e.prompt, job: e.job, fence: e.fence, at: e.at, remote: r}
	c.line.enter(r.sequence)
}

// remoteFrame handles a message of a run. Here and below, r may be nil: events of
// an unknown run are ignored.
func (c *client) remoteFrame(r *remoteRun, e *runEvent) {
	if r == nil || r.outdated || e.n <= r.last {
		return
	}
	r.last = e.n
	m := e.message
	m.Data = bytes.Clone(m.Data) // the message must not keep the whole peer message in memory
	if e.final {
		r.end = append(r.end, m)
		return
	}
	c.line.send(r.sequence, m)
}

// remoteEnd closes a run. It returns false if the client already has it or needs nothing more of
// it.
func (c *client) remoteEnd(r *remoteRun, told bool) bool {
	if r == nil {
		return true
	}
	if r.outdated && c.unconfirmed(r.job) {
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
	c.line.end(r.sequence, r.end)
	r.end = nil
	return true
}

func (c *client) remoteLost(r *remoteRun) {
	if r != nil && !r.outdated {
		c.line.lose(r.sequence)
	}
}

// synced drops runs that the source did not name in its session: it no longer has
// them.
func (c *client) synced(src *source, floor uint64) {
	for id, r := range src.runs {
		if r.session == src.session {
			continue
		}
		c.remoteLost(r)
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
func (c *client) hubDied(hub string) {
	src := c.sources[hub]
	if src == nil {
		return
	}
	src.broken = true // if it returns, everything is requested again
	for _, r := range src.runs {
		if r.sequence != nil && !r.sequence.over {
			c.line.lose(r.sequence)
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

// dropRemote forgets the runs of other hubs: the owner has changed, and their hubs
// send them to the new one.
func (c *client) dropRemote() {
	c.line.drop(func(q *sequence) bool { return q.remote != nil })
	c.sources = nil
}

// enter adds a running sequence that began elsewhere, ordered by its start.
func (l *line) enter(q *sequence) {
	i := slices.IndexFunc(l.running, func(other *sequence) bool { return other.at > q.at })
	if i < 0 {
		i = len(l.running)
	}
	l.running = slices.Insert(l.running, i, q)
	l.advance(false)
}

// drop forgets sequences without telling the client.
func (l *line) drop(which func(*sequence) bool) {
	drop := func(q *sequence) bool {
		if !which(q) {
			return false
		}
		q.over = true
		l.free(q)
		return true
	}
	l.running = slices.DeleteFunc(l.running, drop)
	l.waiting = slices.DeleteFunc(l.waiting, drop)
	l.sent = slices.DeleteFunc(l.sent, drop)
	l.advance(false)
}

// floor returns the lowest id of a sequence that is kept, or the highest possible
// number if there is none.
func (l *line) floor() uint64 {
	floor := ^uint64(0)
	for _, list := range [][]*sequence{l.running, l.waiting, l.sent} {
		for _, q := range list {
			floor = min(floor, q.id)
		}
	}
	return floor
}

// of returns a sequence of a job, nil if none is kept.
func (l *line) of(job string) *sequence {
	for _, list := range [][]*sequence{l.running, l.waiting, l.sent} {
		for _, q := range list {
			if q.job == job {
				return q
			}
		}
	}
	return nil
}
