package stream

import (
	"bytes"
	"slices"
	"time"
)

// askAgainAfter is how long an answer to letterAgain may take.
const askAgainAfter = time.Second

// silenceBeats is how many beats of a source may fail to come before it is asked.
const silenceBeats = 3

// source is another hub that has runs of a client whose home is here.
type source struct {
	hub string
	// session is the one that is being read, next the number that is due.
	session uint64
	next    uint64
	// broken is set when letters of the session are missing or the hub was
	// taken for dead: only a new session counts.
	broken bool
	asked  time.Time
	heard  time.Time // when a letter came last
	runs   map[uint64]*foreignRun
}

// foreignRun is a run of another hub.
type foreignRun struct {
	id       uint64
	hub      string
	sequence *sequence
	session  uint64    // the last in which it was named
	last     uint64    // the newest message that has arrived
	end      []Message // those that will close it
	// outdated runs are shown to nobody: the job has a newer one, or its end
	// was told already.
	outdated bool
	// received tells that the client has confirmed all of it.
	received bool
	// lost is set when the hub was taken for dead.
	lost bool
}

// finished is the fence of a job whose end the client has, or is about to have.
const finished = int64(^uint64(0) >> 1)

// maxFences bounds what is remembered of a client's jobs.
const maxFences = 4096

// newest reports whether no later run of a job is known, and notes the fence.
// Earlier ones are over, whatever their hubs say.
func (c *client) newest(job string, fence int64) bool {
	if job == "" || c.streams.carrier == nil {
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

func (c *client) noteFence(job string, fence int64) {
	if job == "" || c.streams.carrier == nil {
		return
	}
	if c.fences == nil || len(c.fences) >= maxFences {
		c.fences = map[string]int64{} // a hub that comes back so late is rare
	}
	c.fences[job] = fence
}

// maxRecent bounds the jobs whose receipt is told to the client's next home.
const maxRecent = 64

// noteReceived notes that the client has a job's end. The hub that ran the job
// is told, too; should the client move before that has heard, the next home
// must not show it again.
func (c *client) noteReceived(job string) {
	if job == "" || c.streams.carrier == nil {
		return
	}
	c.noteFence(job, finished)
	if slices.Contains(c.recent, job) {
		return
	}
	if len(c.recent) >= maxRecent {
		c.recent = slices.Delete(c.recent, 0, 1)
	}
	c.recent = append(c.recent, job)
}

// receivedElsewhere drops what the client has received at its former home.
func (c *client) receivedElsewhere(job string) {
	c.noteReceived(job)
	c.line.drop(func(q *sequence) bool {
		if q.job != job || q.open && c.line.out != nil {
			return false // it is being shown
		}
		if r := q.foreign; r != nil {
			r.outdated, r.received = true, q.over
			return true
		}
		return q.over
	})
}

// verdict is what becomes of a letter.
type verdict int

const (
	accept verdict = iota
	ignore
	gap // letters before it are missing
)

// judge decides on letterEvents before anything is done with it.
func (c *client) judge(l *letter) verdict {
	if l.home < c.home.Number {
		return ignore // for a home that the client has left since
	}
	src := c.sources[l.from]
	if src == nil {
		src = &source{hub: l.from, runs: map[uint64]*foreignRun{}}
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

// apply takes a letter in that was accepted. It returns the runs that the
// sender should be told are received.
func (c *client) apply(l *letter) (received []uint64) {
	src := c.sources[l.from]
	src.next, src.heard = l.number+1, time.Now()
	for i := range l.events {
		e := &l.events[i]
		r := src.runs[e.id]
		switch e.kind {
		case eventBegin:
			c.beginForeign(src, e)
		case eventFrame:
			c.foreignFrame(r, e)
		case eventEnd:
			if !c.foreignEnd(r, e.told) {
				received = append(received, e.id)
			}
		case eventLost:
			c.foreignLost(r)
			delete(src.runs, e.id)
		case eventSynced:
			for _, job := range e.jobs {
				c.receivedElsewhere(job)
			}
			c.synced(src, e.floor)
			c.answered(l.from, l.home)
		case eventBeat:
			received = append(received, src.confirmed(e.floor)...)
		}
	}
	return received
}

func (c *client) beginForeign(src *source, e *event) {
	r := src.runs[e.id]
	if r == nil {
		r = &foreignRun{id: e.id, hub: src.hub}
		src.runs[e.id] = r
	} else if !r.lost {
		r.session = src.session
		return // it goes on where it stood
	}
	*r = foreignRun{id: e.id, hub: src.hub, session: src.session}
	if r.outdated = !c.newest(e.job, e.fence); r.outdated {
		return
	}
	r.sequence = &sequence{prompt: e.prompt, job: e.job, fence: e.fence, at: e.at, foreign: r}
	c.line.enter(r.sequence)
}

// foreignFrame takes a message. r may be nil here and below: what an event
// speaks of that is not known is of no concern.
func (c *client) foreignFrame(r *foreignRun, e *event) {
	if r == nil || r.outdated || e.n <= r.last {
		return
	}
	r.last = e.n
	m := e.message
	m.Data = bytes.Clone(m.Data) // a letter must not stay for one of its messages
	if e.final {
		r.end = append(r.end, m)
		return
	}
	c.line.send(r.sequence, m)
}

// foreignEnd closes a run. It reports false when the client has, or needs,
// nothing more of it.
func (c *client) foreignEnd(r *foreignRun, told bool) bool {
	if r == nil {
		return true
	}
	if r.outdated {
		r.received = true
	}
	if r.received {
		return false
	}
	r.sequence.told = r.sequence.told || told
	c.line.end(r.sequence, r.end)
	r.end = nil
	return true
}

func (c *client) foreignLost(r *foreignRun) {
	if r != nil && !r.outdated {
		c.line.lose(r.sequence)
	}
}

// synced ends what the source did not name in its session: it knows no more
// of these.
func (c *client) synced(src *source, floor uint64) {
	for id, r := range src.runs {
		if r.session == src.session {
			continue
		}
		c.foreignLost(r)
		delete(src.runs, id)
	}
	src.confirmed(floor)
}

// confirmed lists the runs that the client has received and whose source has
// not heard it; what the source has forgotten is forgotten here.
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

// die gives up the runs of a hub that does not live any more. Those that have
// ended are complete and stay.
func (c *client) die(hub string) {
	src := c.sources[hub]
	if src == nil {
		return
	}
	src.broken = true // should it wake, everything is asked for anew
	for _, r := range src.runs {
		if r.sequence != nil && !r.sequence.over {
			c.line.lose(r.sequence)
			r.lost = true
		}
	}
}

// silent reports whether a source should have said something: it has a run
// that goes on, as far as is known here, and a hub with a run sends beats.
func (src *source) silent() bool {
	if time.Since(src.heard) < silenceBeats*beatInterval {
		return false
	}
	for _, r := range src.runs {
		if r.sequence != nil && !r.sequence.over {
			return true
		}
	}
	return false
}

// dropForeign forgets the runs of other hubs: the home has moved, and their
// hubs send them there.
func (c *client) dropForeign() {
	c.line.drop(func(q *sequence) bool { return q.foreign != nil })
	c.sources = nil
}

// enter adds a running sequence that began elsewhere, in its place by its
// start.
func (l *line) enter(q *sequence) {
	i := slices.IndexFunc(l.running, func(other *sequence) bool { return other.at > q.at })
	if i < 0 {
		i = len(l.running)
	}
	l.running = slices.Insert(l.running, i, q)
	l.advance(false)
}

// drop forgets sequences without a word.
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

// floor is the lowest id of a sequence that is kept, or above all of them.
func (l *line) floor() uint64 {
	floor := ^uint64(0)
	for _, list := range [][]*sequence{l.running, l.waiting, l.sent} {
		for _, q := range list {
			floor = min(floor, q.id)
		}
	}
	return floor
}

// of finds a sequence that is kept of a job.
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
