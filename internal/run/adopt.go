package run

import (
	"context"
	"time"

	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/traces"
)

// takeOver waits for the run's instance and follows the run there.
func (r adopting) takeOver(ctx context.Context, o queue.Orphan) result {
	if err := r.retry(ctx, "read the body", func(ctx context.Context) error { return r.readAdopted(ctx, o.Key) }); err != nil {
		if ctx.Err() != nil {
			return result{kind: dropped}
		}
		r.log.Warn("cannot read an orphaned job's body", "error", err)
	}
	if o.Exhausted {
		return result{kind: lost, reason: "its hub died while giving it back"}
	}
	r.division = dividing(r).divided(func(string) bool { return true })
	conn, res := r.await(ctx, o)
	if conn == nil {
		return res
	}
	r.conn, r.phase, r.missed.messages = conn, posted, true
	r.trace.Enter(traces.Run, time.Now())
	if !o.Released && !r.d.Runs.seize(ctx, conn, r.Run, r.d.Settings().ContactTimeout) {
		return result{kind: excused, cause: InUse, reason: "its instance has another run"}
	}
	if !o.Released {
		defer r.listen()()
	}
	if r.wish != wanted {
		r.interrupt(ctx)
	}
	if o.State == job.Running {
		following(r).resume(ctx)
	}
	r.mail.put(runEvent{kind: lookAsked}) // it may have ended long ago
	return following(r).follow(ctx)
}

// readAdopted reads the body of a job whose run was taken over. The run no longer needs the job's
// API keys. Errors: those of [queue.Queue.Body].
func (r adopting) readAdopted(ctx context.Context, key string) error {
	body, err := r.d.Queue.Body(ctx, key)
	preparation(r).takeBody(body)
	if body.Prompt != nil {
		return nil
	}
	return err
}

// listen opens the socket that the run's messages go to, if that is not the connection's own: they
// go to the client id under which the prompt was posted, by another hub or over another connection.
// Call stop to close it.
func (r adopting) listen() (stop func()) {
	sid := r.Lease().SID
	if sid == r.conn.ClientID() {
		return func() {}
	}
	return r.conn.Former.Share(r.Holder(), sid)
}

// await waits until the instance of an orphaned run can be asked, for as long as the run may still
// be there and somebody wants it. Without a connection, the result says how the run ends.
func (r adopting) await(ctx context.Context, o queue.Orphan) (*instance.Link, result) {
	if o.Instance == "" { // it was to have another job's result
		return nil, result{kind: unused}
	}
	began := time.Now()
	for last, wasKnown := began, false; ; {
		// An instance that has only just been reported may still have to be connected.
		_, known := r.d.Fleet.Instance(o.Instance)
		if known && !wasKnown {
			last = time.Now()
		}
		wasKnown = known
		if conn := r.d.Links.Get(o.Instance); conn != nil && conn.IsReached() {
			return conn, result{}
		}
		if r.d.Reports.Vouched(o.Run) {
			last = time.Now()
		}
		switch {
		case r.wish != wanted && time.Since(began) > unwantedPatience:
			return nil, r.cancelledEnd()
		case time.Since(last) > r.d.Reports.Patience(o.Instance), time.Since(began) > vouchFactor*r.d.Settings().ContactTimeout:
			return nil, result{kind: lost, cause: Unreachable, reason: "its instance did not come back"}
		}
		e, err := r.mail.next(ctx, 100*time.Millisecond)
		if err != nil {
			return nil, result{kind: dropped}
		}
		switch e.kind {
		case cancelAsked:
			r.wish = max(r.wish, cancelled)
		case withdrawAsked:
			showing(r).withdraw()
		case leaseLost:
			return nil, result{kind: dropped}
		case hubFailed:
			return nil, result{kind: crashed}
		case frameArrived, socketUp, lookAsked, heldElsewhere, socketDown, moved, workDone, takeBackAsked, evictAsked, partHeard, partMoved, movedUp, idleReported, silence: // only for a run with a connection
		}
	}
}
