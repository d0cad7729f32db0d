package dispatch

import (
	"context"
	"time"
)

// Evict takes what an instance runs for this hub away from it: the run is interrupted, and
// its job goes back to the queue as if it had never been given out. It returns at once. An
// instance may still be busy then, so call it again until it is free.
func (d *Dispatcher) Evict(instance string) {
	conn := d.connection(instance)
	if conn == nil {
		return
	}
	for _, r := range conn.runs() {
		if r != nil {
			r.mail.put(runEvent{kind: evictAsked})
		}
	}
}

// evict makes the run leave its instance. A run that the interrupt does not end in a
// minute is given up.
func (r *run) evict(ctx context.Context) result {
	switch {
	case r.wish != wanted || r.stop.cause == hung || r.stop.cause == overtime:
		return result{} // it is interrupted already
	case r.stop.cause == evicted:
		if time.Since(r.stop.at) > min(interruptTimeout, r.d.settings().StallTimeout) {
			r.log.Warn("the instance keeps running a prompt that was taken back")
			return result{kind: unused}
		}
	case r.unload(ctx):
		return result{kind: unused}
	default:
		r.stop = stop{cause: evicted, at: time.Now(), node: r.node}
	}
	r.interrupt(ctx) // again: it has no effect before the run begins
	return result{}
}
