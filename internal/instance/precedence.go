package instance

import (
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/fleet"
)

const (
	// firstTurn is how long an instance is left to the hub whose run has ended there. That hub is
	// the first to know that it is free; if all hubs looked for work at once, one would get the
	// instance and the others would have read the queue in vain.
	firstTurn = 150 * time.Millisecond
	// firstTurnLost is the same, counted from when the instance is reported as idle, if nobody has
	// said that the run has ended: the report may be older than the run.
	firstTurnLost = 500 * time.Millisecond
)

// Precedence knows the last run that another hub has given an instance, and whether that hub has the
// first turn there. The zero value says that none has.
type Precedence struct {
	mu sync.Mutex
	// key is the job of the run while its hub has the first turn.
	key string
	// freed is when that hub let go of the instance, and idle when the instance was first seen idle
	// since it got the run.
	freed, idle time.Time
	// last is the run.
	last othersRun
}

// othersRun is a run of another hub.
type othersRun struct {
	key, shape string
	since      time.Time
}

// Given notes that another hub has given the instance a job. shape is that of the job, known
// whether it is known.
func (p *Precedence) Given(key, shape string, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key, p.freed, p.idle = key, time.Time{}, time.Time{}
	if known {
		p.last = othersRun{key: key, shape: shape, since: time.Now()}
	}
}

// lapse notes that this hub has given the instance a job.
func (p *Precedence) lapse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key, p.freed, p.idle = "", time.Time{}, time.Time{}
}

// LetGo notes that another hub has let go of the instance after a job. turn is how long that hub has
// the first turn; 0 if it has none.
func (p *Precedence) LetGo(key string) (turn time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.key != key {
		return 0
	}
	p.freed = time.Now()
	return firstTurn
}

// Unseen reports whether another hub has given the instance a run and the instance has not been seen
// idle since: see [Precedence.IsLeft].
func (p *Precedence) Unseen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.key != "" && p.freed.IsZero() && p.idle.IsZero()
}

// IsLeft reports whether the instance is left to the other hub. first says that nothing else may tell
// when that is over, so that it must be checked again after wait.
func (p *Precedence) IsLeft(now time.Time) (left, first bool, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.key == "":
		return false, false, 0
	case !p.freed.IsZero():
		return now.Sub(p.freed) < firstTurn, false, 0
	case p.idle.IsZero():
		p.idle = now
		return true, true, firstTurnLost
	}
	return now.Sub(p.idle) < firstTurnLost, false, 0
}

// Elsewhere returns the shape of another hub's job that the instance is running, and since when;
// false if unknown.
func (p *Precedence) Elsewhere(i fleet.Instance) (shape string, since time.Time, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last.shape, p.last.since, p.last.shape != "" && p.last.key == i.Report.Job
}
