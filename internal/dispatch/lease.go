package dispatch

import (
	"context"
	"log/slog"
	"time"

	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/retry"
	"github.com/comfyhub/comfyhub/internal/traces"
)

// leases keeps the leases of this hub's runs and takes over runs whose leases have ended.
type leases struct {
	queue      *queue.Queue
	settings   func() Settings
	hub, hubID string
	runs       *Runs
	runner     *runner
	observe    Observer
	log        *slog.Logger
	// lost are the runs that the last renewal did not find.
	lost chan []job.Run
}

// keep renews this hub's leases, even while an instance is silent: a lease says that the hub
// is alive, not that the run makes progress. Nothing slow may hold it up.
func (l *leases) keep(ctx context.Context) {
	for ctx.Err() == nil {
		l.renew(ctx)
		retry.Sleep(ctx, l.settings().Lease/3)
	}
}

// tend restores what Redis has lost and takes over runs whose leases have ended. It may take a
// long time, and no lease waits for it.
func (l *leases) tend(ctx context.Context) {
	l.heal(ctx)
	l.adoptOwn(ctx)
	for ctx.Err() == nil {
		l.heal(ctx)
		l.recover(ctx, nil)
		l.sweep(ctx)
		timer := time.NewTimer(l.settings().Lease / 3)
		for due := false; !due && ctx.Err() == nil; {
			select {
			case lost := <-l.lost:
				l.recover(ctx, lost)
			case <-timer.C:
				due = true
			case <-ctx.Done():
			}
		}
		timer.Stop()
	}
}

// heal restores what Redis has lost.
func (l *leases) heal(ctx context.Context) {
	if err := l.queue.Heal(ctx); err != nil && ctx.Err() == nil {
		l.log.Debug("cannot check what Redis has lost", "error", err)
	}
}

// leasesOf returns the leases of runs.
func leasesOf(runs []*run) []job.Run {
	out := make([]job.Run, len(runs))
	for i, r := range runs {
		out[i] = r.lease()
	}
	return out
}

func (l *leases) renew(ctx context.Context) {
	held := leasesOf(l.runs.all())
	if len(held) == 0 {
		return
	}
	result, err := l.queue.Renew(ctx, l.hub, held)
	if err != nil {
		return // Redis is away; the runs go on
	}
	if len(result.Lost) > 0 {
		select {
		case l.lost <- result.Lost:
		default: // the next renewal finds them again
		}
	}
	for _, c := range result.Cancelled {
		l.runs.Cancel(c.Key)
	}
	for _, w := range result.Withdrawn {
		l.runs.Withdraw(w.Key)
	}
}

// recover restores runs that Redis has lost and gives up those that now have another holder. It
// never overlaps with a sweep, which gives this hub's own run a new lease if the old one ended: a
// renewal under way would take that run for lost, and by the time it is looked at here it has the
// new fence.
func (l *leases) recover(ctx context.Context, lost []job.Run) {
	gone, err := l.queue.Recover(ctx, leasesOf(l.runs.all()), lost)
	if err != nil {
		return // the next renewal finds them again
	}
	for _, run := range gone {
		if r := l.runs.get(run.Key); r != nil && r.lease().Fence == run.Fence {
			r.mail.put(runEvent{kind: leaseLost})
		}
	}
}

// adoptOwn takes over the runs of an earlier process of this hub without waiting for their leases
// to end.
func (l *leases) adoptOwn(ctx context.Context) {
	pauses := retry.New(time.Second, time.Second)
	for ctx.Err() == nil {
		runs, err := l.queue.Runs(ctx)
		if err != nil {
			pauses.Wait(ctx)
			continue
		}
		for _, held := range runs {
			if held.Hub == l.hub || !sameHub(held.Hub, l.hubID) {
				continue
			}
			orphan, err := l.queue.Adopt(ctx, held, l.hub)
			if err == nil {
				l.adopt(ctx, orphan, Own)
			}
		}
		return
	}
}

// sameHub reports whether a holder, "id/boot", is the hub with this id.
func sameHub(holder, id string) bool {
	return len(holder) > len(id) && holder[:len(id)] == id && holder[len(id)] == '/'
}

// sweep takes over runs whose holder let the lease run out.
func (l *leases) sweep(ctx context.Context) {
	orphans, err := l.queue.Sweep(ctx, l.hub, 100)
	if err != nil {
		return
	}
	for _, o := range orphans {
		if mine := l.runs.get(o.Key); mine != nil {
			mine.relet(o.Run) // before anything slow: it cannot be renewed until then
		}
	}
	for _, o := range orphans {
		l.adopt(ctx, o, Expired)
	}
}

// adopt follows a run that somebody else began. A run that is still going on is followed to its
// end, one that has ended is collected, and only a job whose run is really lost runs again.
func (l *leases) adopt(ctx context.Context, o queue.Orphan, from Origin) {
	if mine := l.runs.get(o.Key); mine != nil {
		// Our own run, whose lease ended while Redis was away, or which another hub took while this
		// one was hanging: it goes on under the new fence.
		mine.relet(o.Run)
		if from == Silent {
			mine.mail.put(runEvent{kind: heldElsewhere})
		}
		return
	}
	if l.runs.claims(o.Run) {
		return
	}
	j, err := l.queue.Get(ctx, o.Key)
	if err != nil {
		l.log.Warn("cannot read an orphaned job", "job", o.Key, "error", err)
		return
	}
	j.Run, j.Fence = o.Run, o.Fence
	l.observe.Adopted(from)
	l.log.Info("taking over a run", "job", o.Key, "instance", o.Instance)
	r := l.runner.newRun(nil, j)
	r.log, r.adopted = r.log.With("instance", o.Instance), from
	if o.CancelAsked {
		r.wish = cancelled
		r.parting.unwant()
	}
	l.runner.launch(r, func(ctx context.Context) result { return r.takeOver(ctx, o) })
}

// takeOver waits for the run's instance and follows the run there.
func (r *run) takeOver(ctx context.Context, o queue.Orphan) result {
	if err := r.retry(ctx, "read the body", func(ctx context.Context) error { return r.readAdopted(ctx, o.Key) }); err != nil {
		if ctx.Err() != nil {
			return result{kind: dropped}
		}
		r.log.Warn("cannot read an orphaned job's body", "error", err)
	}
	if o.Exhausted {
		return result{kind: lost, reason: "its hub died while giving it back"}
	}
	r.division = r.divided(func(string) bool { return true })
	conn, res := r.await(ctx, o)
	if conn == nil {
		return res
	}
	r.conn, r.phase, r.missed.messages = conn, posted, true
	r.trace.Enter(traces.Run, time.Now())
	if !o.Released && !r.d.runs.seize(ctx, conn, r, r.d.settings().ContactTimeout) {
		return result{kind: excused, cause: InUse, reason: "its instance has another run"}
	}
	if !o.Released {
		defer r.listen()()
	}
	if r.wish != wanted {
		r.interrupt(ctx)
	}
	if o.State == job.Running {
		r.resume(ctx)
	}
	r.mail.put(runEvent{kind: lookAsked}) // it may have ended long ago
	return r.follow(ctx)
}

// readAdopted reads the body of a job whose run was taken over. The run no longer needs the job's
// API keys. Errors: those of [queue.Queue.Body].
func (r *run) readAdopted(ctx context.Context, key string) error {
	body, err := r.d.queue.Body(ctx, key)
	r.takeBody(body)
	if body.Prompt != nil {
		return nil
	}
	return err
}

// listen opens the socket that the run's messages go to, if that is not the connection's own: they
// go to the client id under which the prompt was posted, by another hub or over another connection.
// Call stop to close it.
func (r *run) listen() (stop func()) {
	sid := r.lease().SID
	if sid == r.conn.ClientID() {
		return func() {}
	}
	return r.conn.Former.Share(r, sid)
}

// await waits until the instance of an orphaned run can be asked, for as long as the run may still
// be there and somebody wants it. Without a connection, the result says how the run ends.
func (r *run) await(ctx context.Context, o queue.Orphan) (*instance.Link, result) {
	began := time.Now()
	for last, wasKnown := began, false; ; {
		// An instance that has only just been reported may still have to be connected.
		_, known := r.d.fleet.Instance(o.Instance)
		if known && !wasKnown {
			last = time.Now()
		}
		wasKnown = known
		if conn := r.d.instances.Get(o.Instance); conn != nil && conn.IsReached() {
			return conn, result{}
		}
		if r.d.reports.Vouched(o.Run) {
			last = time.Now()
		}
		switch {
		case r.wish != wanted && time.Since(began) > unwantedPatience:
			return nil, r.cancelledEnd()
		case time.Since(last) > r.d.reports.Patience(o.Instance), time.Since(began) > vouchFactor*r.d.settings().ContactTimeout:
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
			r.withdraw()
		case leaseLost:
			return nil, result{kind: dropped}
		case hubFailed:
			return nil, result{kind: crashed}
		case frameArrived, socketUp, lookAsked, heldElsewhere, socketDown, moved, workDone, takeBackAsked, evictAsked, partHeard, movedUp, silence: // only for a run with a connection
		}
	}
}
