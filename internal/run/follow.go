package run

import (
	"context"
	"errors"
	"time"

	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/panics"
)

// follow watches the run and collects its results.
func (r following) follow(ctx context.Context) result {
	res := r.watch(ctx)
	switch {
	case res.kind == instanceDone:
		return collecting(r).collect(ctx)
	case (res.kind == lost || res.kind == killed || res.kind == unused) && r.wish != wanted:
		return r.cancelledEnd()
	case res.kind == lost && r.Job().Ahead && r.phase < executing:
		res.kind = excused // the instance was lost during another run
	}
	return res
}

// watch follows the run until its instance has finished with it, or it is lost.
func (r following) watch(ctx context.Context) result {
	r.heard, r.asked, r.provenAt = time.Now(), time.Now(), time.Now()
	for {
		e, err := r.mail.next(ctx, time.Until(looking(r).due()))
		if err != nil {
			return result{kind: dropped}
		}
		if e.gap { // a dropped picture may have been a result that exists nowhere else
			r.missed.messages = true
			r.log.Warn("dropped messages of a run: the hub could not keep up")
		}
		switch e.kind {
		case frameArrived:
			if r.relay(ctx, e.frame) {
				return result{kind: instanceDone}
			}
		case socketUp:
			// Even if nobody told this run that the socket was lost: it may have been given out
			// just after that.
			r.missed.messages, r.down = true, nil
			if res := looking(r).look(ctx); res.kind != undecided {
				return res
			}
		case heldElsewhere:
			// The other hub may have received the final message, and when its socket closed,
			// ComfyUI may have silenced ours, which has the same client id.
			r.missed.messages = true
			if res := looking(r).look(ctx); res.kind != undecided {
				return res
			}
		case idleReported:
			// Whatever it said was heard, unless a message was missed: the report may be older than the run.
			if r.missed.messages && time.Since(r.asked) >= lookDown {
				r.mail.put(runEvent{kind: lookAsked})
			}
		case lookAsked:
			if res := looking(r).look(ctx); res.kind != undecided {
				return res
			}
		case socketDown:
			r.missed.messages = true
			r.down = e.err
			switch {
			case errors.Is(e.err, panics.ErrPanic):
				return result{kind: crashed}
			case instance.Gone(e.err) && r.phase == executing:
				return result{kind: killed, died: true, asked: instance.Asked(e.err), reason: "the instance died" + r.where()}
			case instance.Gone(e.err), errors.Is(e.err, instance.ErrDropped), looking(r).outOfReach():
				return looking(r).unreachable()
			}
		case cancelAsked:
			r.wish = max(r.wish, cancelled)
			if looking(r).unload(ctx) {
				return r.cancelledEnd()
			}
			r.interrupt(ctx)
		case withdrawAsked:
			showing(r).withdraw()
			if looking(r).unload(ctx) {
				return r.cancelledEnd()
			}
			r.interrupt(ctx)
		case takeBackAsked:
			r.recalled.Store(false)
			if looking(r).unload(ctx) {
				return result{kind: unused}
			}
		case evictAsked:
			if res := looking(r).evict(ctx); res.kind != undecided {
				return res
			}
		case partHeard:
			r.division.look(ctx)
		case partMoved:
			showing(r).aside()
		case movedUp:
			r.heard = time.Now()
		case leaseLost:
			return result{kind: dropped}
		case hubFailed:
			return result{kind: crashed}
		case moved:
			r.conn, r.missed.messages, r.down, r.provenAt = e.conn, true, nil, time.Now()
			stop := adopting(r).listen()
			defer stop()
		case workDone: // only comes to a run that has ended
		case silence:
			if res := looking(r).silent(ctx); res.kind != undecided {
				return res
			}
		}
	}
}

// begun notes that the instance is executing the run, so that the next one may follow.
func (r following) begun() {
	if r.conn == nil {
		return
	}
	r.conn.Begins(r.Holder())
	if j := r.Job(); j.Ahead {
		r.load()
		r.d.Observe.Dispatched(r.conn.Name, r.d.Notices.Age(j), 0)
	}
	if r.d.Settings().Ahead {
		r.d.Signal.Freed()
	}
}

// tellNode notes the running node for whoever watches the fleet.
func (r following) tellNode() {
	class := ""
	if r.node != "" && r.d.Elsewhere.Watched() {
		class = classOf(r.body.Prompt, r.node)
	}
	r.doing.executes(r.node, class)
}
