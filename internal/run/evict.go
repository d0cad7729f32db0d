package run

import (
	"context"
	"time"
)

// evict makes the run leave its instance. If the interrupt does not end the run within a minute,
// the run is given up.
func (r looking) evict(ctx context.Context) result {
	switch {
	case r.wish != wanted || r.stop.cause == hung || r.stop.cause == overtime:
		return result{} // already interrupted
	case r.stop.cause == evicted:
		if time.Since(r.stop.at) > min(interruptTimeout, r.d.Settings().StallTimeout) {
			r.log.Warn("the instance keeps running a prompt that was taken back")
			return result{kind: unused}
		}
	case r.unload(ctx):
		return result{kind: unused}
	default:
		r.stop = stop{cause: evicted, at: time.Now(), node: r.node}
	}
	r.interrupt(ctx) // again: an interrupt has no effect before the run begins
	return result{}
}
