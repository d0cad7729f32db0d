package dispatch

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/retry"
	"github.com/comfyhub/comfyhub/internal/traces"
)

// conclude does what the result of a run calls for.
func (r *run) conclude(ctx context.Context, res result) {
	switch res.kind {
	case jobEnded:
		collected := r.phase == released
		r.finish(ctx, res)
		if collected && r.phase == ended { // else the hub that now holds the run needs the record
			r.conn.Cleanup.Add(r.lease().Upstream)
		}
	case crashed:
		r.crash(ctx)
	case lost, excused, hopeless, killed:
		r.requeue(ctx, res)
	case unused:
		r.giveBack(ctx)
	case dropped:
		r.lose()
		if ctx.Err() == nil && r.conn != nil && r.lease().SID == r.conn.ClientID() {
			// The hub that now has the run listens under this client id, so the socket here hears
			// nothing any more.
			r.conn.Reopen()
			r.free()
		}
	case rejected: // there is nothing left to end
	case undecided, instanceDone, timedOut: // the run is still going on
	}
}

// crash ends the job of a run in which the hub itself has failed: the next attempt would fail in
// the same way. It relies on nothing that the run has built.
func (r *run) crash(ctx context.Context) {
	r.lose()
	if r.phase == ended {
		return
	}
	r.interrupt(ctx)
	r.files.stop()
	r.files = newOutputs(r)
	r.finish(ctx, errorEnding(r.Job(), r.body, comfyui.Failure{
		Type: "RuntimeError", Message: "The hub failed while it followed this prompt.",
	}, time.Now()))
}

// finish records the end of the job and then tells the client.
func (r *run) finish(ctx context.Context, e result) {
	outcome := e.outcome(e.why())
	outcome.Uses = r.files.uses()
	r.trace.Enter(traces.Finish, time.Now())
	counting := r.d.streams.Counting(r.Job().Caller)
	var left int
	write := func(ctx context.Context) (err error) {
		left, err = r.d.queue.FinishCounting(ctx, r.billed(), outcome)
		return err
	}
	err := r.retry(ctx, "finish", write)
	if err != nil && !decided(err) && ctx.Err() == nil {
		// Maybe it is this ending that cannot be written. The next run would end the same way.
		e = errorEnding(r.Job(), r.body, comfyui.Failure{Type: "RuntimeError", Message: "The hub could not store the end of this prompt."}, time.Now())
		outcome = e.outcome(e.why())
		err = r.retry(ctx, "finish with an error", write)
	}
	if err != nil {
		if errors.Is(err, queue.ErrWithdrawn) {
			r.phase = ended
		}
		r.d.streams.StatusChanged(r.Job().Caller)
		r.lose() // stale: somebody else ends it; or it was withdrawn, or the hub is stopping
		return
	}
	r.phase = ended
	counting.Counted(left)
	defer counting.Tell()
	switch {
	case r.out != nil:
		r.runsNoMore()
		r.out.EndCounted(e.frames()...)
	case r.wish != withdrawn:
		r.d.notices.announce(r.Job(), e.frames()...)
	}
	r.finished(string(e.state), r.d.notices.age(r.Job()))
	if r.d.faulted != nil && e.state == job.Failed && r.Job().Parent == "" {
		r.d.faulted(r.Job(), r.Job().Run.Instance, e.failure(), false)
	}
	r.log.Info("job ended", "outcome", string(e.state), "ran_ms", r.ran().Milliseconds())
}

// requeue returns a lost run's job to its old place in the queue, or ends the job if it has no
// attempts left or has killed too many instances.
func (r *run) requeue(ctx context.Context, res result) {
	if ctx.Err() != nil {
		return
	}
	if r.conn != nil && res.died {
		i, _ := r.d.fleet.Instance(r.conn.Name)
		if res.asked || i.Deliberate(r.boot) {
			// The job is not to blame.
			res.kind, res.cause, res.reason = excused, Restarted, "the instance was restarted on purpose"
		}
	}
	if r.conn != nil && (res.kind == lost || res.kind == killed) {
		if cause := res.lostBy(); (cause == Died || cause == Refused || cause == Results) && r.cameToNothing(cause) {
			res.kind, res.elsewhere = excused, true // this does not cost the job an attempt
		}
	}
	r.lose()
	r.free()
	r.log.Warn("run lost", "reason", res.reason)
	r.finished("lost", 0)
	if r.d.faulted != nil {
		r.d.faulted(r.Job(), r.Job().Run.Instance, res.reason, true)
	}
	var back job.Job
	err := r.retry(ctx, "requeue", func(ctx context.Context) (err error) {
		back, err = r.d.queue.Requeue(ctx, r.lease(), queue.RequeueOptions{
			Reason: attemptText(r.Job(), res.reason), Excused: res.kind == excused, Killed: res.kind == killed,
			Hopeless: res.kind == hopeless, Failed: res.blames(), Pause: res.pause(r.Job().Excuses),
		})
		return err
	})
	switch {
	case err == nil:
		r.phase = ended
		r.retried(res.lostBy())
		r.d.signal.wakeIn(res.pause(r.Job().Excuses))
	case errors.Is(err, queue.ErrExhausted):
		if back.Kills >= queue.MaxKills {
			r.d.blame.health.agreed("", back)
			r.log.Error("job is quarantined: it killed too many instances", "kills", back.Kills)
		}
		why := exhausted(back)
		if res.kind == hopeless {
			why = comfyui.Failure{Type: "RuntimeError", Message: "This prompt cannot run: " + res.reason}
		}
		r.finish(ctx, errorEnding(r.Job(), r.body, why, time.Now()))
	case errors.Is(err, queue.ErrCancelled):
		r.finish(ctx, cancelEnding(r.Job(), r.body, time.Now()))
	}
	r.d.signal.Wake()
}

// maxUnknown is how often a step that fails for an unknown reason is tried again.
const maxUnknown = 4

// retry repeats a step while Redis is unavailable: the work of a run must not be lost because Redis
// restarts at the wrong moment. A step that fails for a reason nobody has thought of is tried a few
// more times.
func (r *run) retry(ctx context.Context, step string, do func(context.Context) error) error {
	unknown := 0
	for pauses := retry.New(100*time.Millisecond, 2*time.Second); ; {
		err := do(ctx)
		switch {
		case errors.Is(err, queue.ErrStale):
			r.log.Warn("the run is no longer this hub's", "step", step)
			return err
		case err == nil, decided(err):
			return err
		case errors.Is(err, queue.ErrUnavailable):
			r.log.Warn("Redis is away, will try again", "step", step, "error", err)
		case unknown == maxUnknown:
			r.log.Error("a step of a run failed; some hub will retry it when the run's lease expires", "step", step, "error", err)
			return err
		default:
			unknown++
			r.log.Error("a step of a run failed, will try again", "step", step, "error", err)
		}
		if !pauses.Wait(ctx) {
			return ctx.Err()
		}
	}
}

// decided reports whether an error is an answer of the queue that stays the same however often it
// is asked.
func decided(err error) bool {
	return slices.ContainsFunc([]error{
		queue.ErrStale, queue.ErrWithdrawn, queue.ErrExhausted, queue.ErrCancelled, queue.ErrAnswered, queue.ErrNotFound, queue.ErrNotQueued,
		queue.ErrTaken, queue.ErrCapped, queue.ErrSecrets, queue.ErrCorrupt,
	}, func(answer error) bool { return errors.Is(err, answer) })
}

// billed returns the lease of the run with how long the run has occupied its instance, which is
// unknown for a run that this hub has taken over.
func (r *run) billed() job.Run {
	lease, since := r.lease(), r.takenAt
	if r.Job().Ahead { // until then it waited behind another one
		since = r.startedAt
	}
	if r.adopted == "" && !since.IsZero() {
		lease.Took = time.Since(since)
	}
	return lease
}

// releaseAfter is how long other hubs may believe that a run still has its instance.
const releaseAfter = 50 * time.Millisecond

// releaseSoon tells the queue that the run's instance is free, unless the end of the job or the
// claim of the next one says so within a moment: one of them usually does, which saves a round
// trip. Call stop at the end of the run.
func (r *run) releaseSoon(ctx context.Context) (stop func()) {
	ctx, stop = context.WithCancel(ctx)
	lease := r.billed()
	r.beside("releasing an instance", func() {
		retry.Sleep(ctx, releaseAfter)
		for pauses := retry.New(100*time.Millisecond, 2*time.Second); ctx.Err() == nil; pauses.Wait(ctx) {
			if !errors.Is(r.d.queue.Release(ctx, lease), queue.ErrUnavailable) {
				return // a stale run is no longer this hub's, and how it ends will tell
			}
		}
	})
	return stop
}

// free lets the instance take another job. It may be called twice.
func (r *run) free() {
	if r.conn == nil {
		return
	}
	r.conn.Detach(r)
	if next := r.d.instances.Get(r.conn.Name); next != nil {
		next.Detach(r) // the run was moved there and does not know yet
	}
}
