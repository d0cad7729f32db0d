package dispatch

import (
	"time"
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

// precedence says whether another hub, having given an instance its last run, has the first turn
// there. The zero value says that none has.
type precedence struct {
	key string
	// freed is when that hub let go of the instance, and idle when the instance was first seen idle
	// since it got the run.
	freed, idle time.Time
}

// left reports whether the instance is left to the other hub. first says that nothing else may tell
// when that is over, so that it must be checked again after wait.
func (p *precedence) left(now time.Time) (left, first bool, wait time.Duration) {
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
