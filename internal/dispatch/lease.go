package dispatch

import (
	"context"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/retry"
	"github.com/comfyhub/comfyhub/internal/traces"
)

// keepLeases renews this hub's leases, even while an instance is silent: a lease says that the hub
// is alive, not that the run makes progress. Nothing slow may hold it up.
func (d *Dispatcher) keepLeases(ctx context.Context) {
	for ctx.Err() == nil {
		d.renew(ctx)
		retry.Sleep(ctx, d.settings().Lease/3)
	}
}

// tendRuns restores what Redis has lost and takes over runs whose leases have ended. It may take a
// long time, and no lease waits for it.
func (d *Dispatcher) tendRuns(ctx context.Context) {
	d.heal(ctx)
	d.adoptOwn(ctx)
	for ctx.Err() == nil {
		d.heal(ctx)
		d.recover(ctx, nil)
		d.sweep(ctx)
		timer := time.NewTimer(d.settings().Lease / 3)
		for due := false; !due && ctx.Err() == nil; {
			select {
			case lost := <-d.lost:
				d.recover(ctx, lost)
			case <-timer.C:
				due = true
			case <-ctx.Done():
			}
		}
		timer.Stop()
	}
}

// heal restores what Redis has lost.
func (d *Dispatcher) heal(ctx context.Context) {
	if err := d.queue.Heal(ctx); err != nil && ctx.Err() == nil {
		d.log.Debug("cannot check what Redis has lost", "error", err)
	}
}

// following returns the runs that this hub follows.
func (d *Dispatcher) following() []*run {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]*run, 0, len(d.runs))
	for _, r := range d.runs {
		out = append(out, r)
	}
	return out
}

// leases returns the leases of runs.
func leases(runs []*run) []job.Run {
	out := make([]job.Run, len(runs))
	for i, r := range runs {
		out[i] = r.lease()
	}
	return out
}

func (d *Dispatcher) renew(ctx context.Context) {
	held := leases(d.following())
	if len(held) == 0 {
		return
	}
	result, err := d.queue.Renew(ctx, d.Hub, held)
	if err != nil {
		return // Redis is away; the runs go on
	}
	if len(result.Lost) > 0 {
		select {
		case d.lost <- result.Lost:
		default: // the next renewal finds them again
		}
	}
	for _, c := range result.Cancelled {
		d.CancelRun(c.Key)
	}
	for _, w := range result.Withdrawn {
		d.WithdrawRun(w.Key)
	}
}

// recover restores runs that Redis has lost and gives up those that now have another holder. It
// never overlaps with a sweep, which gives this hub's own run a new lease if the old one ended: a
// renewal under way would take that run for lost, and by the time it is looked at here it has the
// new fence.
func (d *Dispatcher) recover(ctx context.Context, lost []job.Run) {
	gone, err := d.queue.Recover(ctx, leases(d.following()), lost)
	if err != nil {
		return // the next renewal finds them again
	}
	for _, run := range gone {
		if r := d.followed(run.Key); r != nil && r.lease().Fence == run.Fence {
			r.mail.put(runEvent{kind: leaseLost})
		}
	}
}

// followed returns the run of a job if this hub follows it, else nil.
func (d *Dispatcher) followed(key string) *run {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.runs[key]
}

// CancelRun tells the run of a job, if this hub has it, that the client wants it to end.
func (d *Dispatcher) CancelRun(key string) {
	if r := d.followed(key); r != nil {
		r.parting.unwant()
		r.mail.put(runEvent{kind: cancelAsked})
	}
}

// WithdrawRun is CancelRun for a job that its client has withdrawn: nobody is told about its run
// any more.
func (d *Dispatcher) WithdrawRun(key string) {
	if r := d.followed(key); r != nil {
		r.parting.silently.Store(true)
		r.parting.unwant()
		r.mail.put(runEvent{kind: withdrawAsked})
	}
}

// adoptOwn takes over the runs of an earlier process of this hub without waiting for their leases
// to end.
func (d *Dispatcher) adoptOwn(ctx context.Context) {
	pauses := retry.New(time.Second, time.Second)
	for ctx.Err() == nil {
		runs, err := d.queue.Runs(ctx)
		if err != nil {
			pauses.Wait(ctx)
			continue
		}
		for _, held := range runs {
			if held.Hub == d.Hub || !sameHub(held.Hub, d.HubID) {
				continue
			}
			orphan, err := d.queue.Adopt(ctx, held, d.Hub)
			if err == nil {
				d.adopt(ctx, orphan, Own)
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
func (d *Dispatcher) sweep(ctx context.Context) {
	orphans, err := d.queue.Sweep(ctx, d.Hub, 100)
	if err != nil {
		return
	}
	for _, o := range orphans {
		if mine := d.followed(o.Key); mine != nil {
			mine.relet(o.Run) // before anything slow: it cannot be renewed until then
		}
	}
	for _, o := range orphans {
		d.adopt(ctx, o, Expired)
	}
}

// adopt follows a run that somebody else began. A run that is still going on is followed to its
// end, one that has ended is collected, and only a job whose run is really lost runs again.
func (d *Dispatcher) adopt(ctx context.Context, o queue.Orphan, from Origin) {
	if mine := d.followed(o.Key); mine != nil {
		// Our own run, whose lease ended while Redis was away, or which another hub took while this
		// one was hanging: it goes on under the new fence.
		mine.relet(o.Run)
		if from == Silent {
			mine.mail.put(runEvent{kind: heldElsewhere})
		}
		return
	}
	if d.claims(o.Run) {
		return
	}
	j, err := d.queue.Get(ctx, o.Key)
	if err != nil {
		d.log.Warn("cannot read an orphaned job", "job", o.Key, "error", err)
		return
	}
	j.Run, j.Fence = o.Run, o.Fence
	d.Observe.Adopted(from)
	d.log.Info("taking over a run", "job", o.Key, "instance", o.Instance)
	r := newRun(d, nil, j)
	r.log, r.adopted = r.log.With("instance", o.Instance), from
	if o.CancelAsked {
		r.wish = cancelled
		r.parting.unwant()
	}
	d.launch(r, func(ctx context.Context) result { return r.takeOver(ctx, o) })
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
	if !o.Released && !r.d.seize(ctx, conn, r) {
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

// seize gives an adopted run the connection. Two runs can be adopted at one instance, and the one
// waiting there may come first. The dispatcher may also hold the connection for a moment, only to
// find that the queue does not let it give the instance a second job.
func (d *Dispatcher) seize(ctx context.Context, conn *connection, r *run) bool {
	until := time.Now().Add(d.settings().ContactTimeout)
	for !conn.attach(r) && !d.join(conn, r) {
		if time.Now().After(until) || ctx.Err() != nil {
			return false
		}
		retry.Sleep(ctx, 10*time.Millisecond)
	}
	conn.show(r)
	return true
}

// join puts an adopted run behind the one that has the connection.
func (d *Dispatcher) join(conn *connection, r *run) bool {
	current := conn.running()
	return current != nil && d.followed(current.job().Key) == current && conn.attachAhead(r)
}

// listen opens the socket that the run's messages go to, if that is not the connection's own: they
// go to the client id under which the prompt was posted, by another hub or over another connection.
// Call stop to close it.
func (r *run) listen() (stop func()) {
	sid := r.lease().SID
	if sid == r.conn.clientID() {
		return func() {}
	}
	return r.conn.share(r.d, r, sid)
}

// await waits until the instance of an orphaned run can be asked, for as long as the run may still
// be there and somebody wants it. Without a connection, the result says how the run ends.
func (r *run) await(ctx context.Context, o queue.Orphan) (*connection, result) {
	began := time.Now()
	for last, wasKnown := began, false; ; {
		// An instance that has only just been reported may still have to be connected.
		_, known := r.d.Fleet.Instance(o.Instance)
		if known && !wasKnown {
			last = time.Now()
		}
		wasKnown = known
		if conn := r.d.connection(o.Instance); conn != nil && conn.isReached() {
			return conn, result{}
		}
		if r.d.vouched(o.Run) {
			last = time.Now()
		}
		switch {
		case r.wish != wanted && time.Since(began) > unwantedPatience:
			return nil, r.cancelledEnd()
		case time.Since(last) > r.d.patienceFor(o.Instance), time.Since(began) > vouchFactor*r.d.settings().ContactTimeout:
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

// patienceFor returns how long a run is kept whose instance can neither be reached nor is reported
// to have it.
func (d *Dispatcher) patienceFor(instance string) time.Duration {
	patience := d.settings().ContactTimeout
	if i, known := d.Fleet.Instance(instance); !known || i.Left {
		patience *= arrivalFactor
	}
	return patience
}

const (
	// arrivalFactor times ContactTimeout is how long a run is kept whose instance nobody has
	// reported to this hub yet, or whose agent has left: the instance goes on working, and the
	// agent may only be restarting. An agent that knows another hub looks once a minute for one
	// that has restarted.
	arrivalFactor = 6
	// vouchFactor times ContactTimeout is the longest a run is kept whose instance this hub cannot
	// reach while reports say that it is still going on there.
	vouchFactor = 40
	// unwantedPatience is how long a cancelled run waits for an instance that cannot be reached.
	// Whatever is still running there is stopped when the instance is back.
	unwantedPatience = 2 * time.Second
)

// vouched reports whether an agent says now that a run is going on: whatever keeps this hub from
// reaching the instance, nothing is lost yet.
func (d *Dispatcher) vouched(held job.Run) bool {
	i, known := d.Fleet.Instance(held.Instance)
	// The report names the running prompt. This one may be waiting behind it.
	return known && (i.Has(held.Key) || i.Has(i.Report.Job) && i.Report.Queue-i.Report.Foreign > 1)
}
