package run

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/resultcache"
	"github.com/comfyhub/comfyhub/internal/traces"
)

// conclude does what the result of a run calls for.
func (r finishing) conclude(ctx context.Context, res result) {
	switch res.kind {
	case jobEnded:
		collected := r.phase == released
		r.finish(ctx, res)
		if collected && r.phase == ended { // else the hub that now holds the run needs the record
			r.conn.Cleanup.Add(r.Lease().Upstream)
		}
	case crashed:
		r.crash(ctx)
	case lost, excused, hopeless, killed:
		r.requeue(ctx, res)
	case unused:
		r.giveBack(ctx, 0)
	case dropped:
		showing(r).lose()
		if ctx.Err() == nil && r.conn != nil && r.Lease().SID == r.conn.ClientID() {
			// The hub that now has the run listens under this client id, so the socket here hears
			// nothing any more.
			r.conn.Reopen()
			r.Detach()
		}
	case rejected: // there is nothing left to end
	case undecided, instanceDone, timedOut: // the run is still going on
	}
}

// crash ends the job of a run in which the hub itself has failed: the next attempt would fail in
// the same way. It relies on nothing that the run has built.
func (r finishing) crash(ctx context.Context) {
	showing(r).lose()
	if r.phase == ended {
		return
	}
	r.interrupt(ctx)
	r.files.stop()
	r.files = newOutputs(r.Run)
	r.finish(ctx, errorEnding(r.Job(), r.body, comfyui.Failure{
		Type: "RuntimeError", Message: "The hub failed while it followed this prompt.",
	}, time.Now()))
}

// finish records the end of the job and then tells the client.
func (r finishing) finish(ctx context.Context, e result) {
	outcome := e.outcome(e.why())
	outcome.Uses = r.files.uses()
	if s, ok := resultcache.Decode(r.body.Subject); ok && r.conn != nil && (r.division == nil || !s.Kept) { // see keep
		outcome.Subject = s.Key
	}
	r.trace.Enter(traces.Finish, time.Now())
	counting := r.d.Streams.Statuses.Counting(r.Job().Caller)
	var left int
	write := func(ctx context.Context) (err error) {
		left, err = r.d.Queue.FinishCounting(ctx, r.billed(), outcome)
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
		r.d.Streams.Statuses.Changed(r.Job().Caller)
		showing(r).lose() // stale: somebody else ends it; or it was withdrawn, or the hub is stopping
		return
	}
	r.phase = ended
	counting.Counted(left)
	defer counting.Tell()
	switch {
	case r.out != nil:
		showing(r).runsNoMore()
		r.out.EndCounted(e.frames()...)
	case r.wish != withdrawn:
		r.d.Notices.Announce(r.Job(), e.frames()...)
	}
	r.finished(string(e.state), r.d.Notices.Age(r.Job()))
	if e.state == job.Done {
		r.keep()
	}
	if r.d.Faulted != nil && e.state == job.Failed && r.Job().Parent == "" {
		r.d.Faulted(r.Job(), r.Job().Run.Instance, e.failure(), false)
	}
	r.log.Info("job ended", "outcome", string(e.state), "ran_ms", r.ran().Milliseconds())
}

// requeue returns a lost run's job to its old place in the queue, or ends the job if it has no
// attempts left or has killed too many instances.
func (r finishing) requeue(ctx context.Context, res result) {
	if ctx.Err() != nil {
		return
	}
	if r.conn != nil && res.died && r.conn.Kind == fleet.KindOverflow {
		// The endpoint has taken no job, or this one is not for it: it is as if it had never been there, however
		// often that happens.
		r.giveBack(ctx, slotPause)
		return
	}
	if r.conn != nil && res.died {
		i, _ := r.d.Fleet.Instance(r.conn.Name)
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
	showing(r).lose()
	r.Detach()
	r.log.Warn("run lost", "reason", res.reason)
	r.finished("lost", 0)
	if r.d.Faulted != nil {
		r.d.Faulted(r.Job(), r.Job().Run.Instance, res.reason, true)
	}
	var back job.Job
	err := r.retry(ctx, "requeue", func(ctx context.Context) (err error) {
		back, err = r.d.Queue.Requeue(ctx, r.Lease(), queue.RequeueOptions{
			Reason: attemptText(r.Job(), res.reason), Excused: res.kind == excused, Killed: res.kind == killed,
			Hopeless: res.kind == hopeless, Failed: res.blames(), Pause: res.pause(r.Job().Excuses),
		})
		return err
	})
	switch {
	case err == nil:
		r.phase = ended
		r.retried(res.lostBy())
		r.d.Signal.WakeIn(res.pause(r.Job().Excuses))
	case errors.Is(err, queue.ErrExhausted):
		if back.Kills >= queue.MaxKills {
			r.d.Health.agreed("", back)
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
	r.d.Signal.Wake()
}

// slotPause is how long a job waits that a slot of an endpoint has given back: all hubs know soon why.
const slotPause = time.Second

// giveBack returns a job that was taken back to its old place in the queue. It waits there for pause.
func (r finishing) giveBack(ctx context.Context, pause time.Duration) {
	r.log.Info("job taken back from an instance")
	showing(r).lose()
	r.Detach()
	err := r.retry(ctx, "give back", func(ctx context.Context) error {
		_, err := r.d.Queue.Requeue(ctx, r.Lease(), queue.RequeueOptions{Unused: true, Pause: pause})
		return err
	})
	switch {
	case err == nil:
		r.phase = ended
		r.trace.Outcome("unused", false)
		if r.stop.cause == evicted {
			r.retried(Evicted)
		}
		if pause > 0 {
			r.d.Signal.WakeIn(pause)
		}
	case errors.Is(err, queue.ErrCancelled):
		r.finish(ctx, cancelEnding(r.Job(), r.body, time.Now()))
	}
	r.d.Signal.Wake()
}

// endedWell notes that the instance has finished the run's job.
func (r finishing) endedWell() {
	if r.conn != nil {
		r.d.Health.publish(r.d.Health.well(r.conn.Name, r.Job()))
	}
}

// cameToNothing notes that a run failed, as far as its instance may be to blame, and reports
// whether its job should be tried on another instance before the job itself is blamed.
func (r finishing) cameToNothing(cause Cause) (elsewhere bool) {
	j := r.Job()
	doubtful, rest, said := r.d.Health.wrong(r.conn.Name, j, cause, r.d.Health.atWork(r.Run))
	if rest > 0 {
		r.d.Signal.WakeIn(rest)
	}
	r.d.Health.publish(said)
	return doubtful && r.sound()
}

// sound reports whether another instance could run the job and has nothing held against it.
func (r finishing) sound() bool {
	return slices.ContainsFunc(r.elsewhere(), func(conn *instance.Link) bool {
		return r.d.Health.Trusted(conn.Name) && !slices.Contains(r.Job().FailedAt, conn.Name)
	})
}
