package run

import (
	"context"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

const (
	// lookAgain is how often the instance is asked when messages are overdue.
	lookAgain = 5 * time.Second
	// foreignPatience is how long a prompt waits at an instance behind somebody else's before it is
	// removed there.
	foreignPatience = 2 * time.Second
	// beginTimeout is how long an instance may claim to run a prompt that it has not begun before
	// we take its worker for dead, so that only a restart helps. A shorter StallTimeout shortens
	// this too.
	beginTimeout = 30 * time.Second
	// hangFactor times StallTimeout is how long a run that the instance still shows may be silent
	// before it is interrupted, unless enough is known about such runs. Silence alone is no fault:
	// a video encoder says nothing for many minutes.
	hangFactor = 6
	// hangSoon times the longest of at least hangRuns runs like it replaces that where it is shorter,
	// and hangLate times the longest one where it is longer.
	hangSoon, hangLate, hangRuns = 20, 3, 5
	// interruptTimeout is how long an interrupt may take to work. A shorter StallTimeout shortens
	// this too.
	interruptTimeout = time.Minute
)

// due returns when to check on the run unless its instance says something before.
func (r looking) due() time.Time {
	due := r.askDue()
	if soon := time.Now().Add(lookDown); r.down != nil && soon.Before(due) {
		return soon
	}
	return due
}

// askDue returns when to ask the instance what it is doing.
func (r looking) askDue() time.Time {
	s, last := r.d.Settings(), r.heard
	if r.asked.After(last) {
		last = r.asked
	}
	due := last.Add(s.StallTimeout)
	switch {
	case r.isAhead() && !r.missed.messages: // the run before it takes as long as it takes
	case r.phase < executing:
		due = last.Add(min(s.StallTimeout, foreignPatience))
	case r.wish != wanted || r.missed.messages || r.stop.cause == hung || r.stop.cause == evicted:
		// After an interrupt, and once messages were missed, the end must not depend on one more
		// message: a server may even have silenced the socket that replaced a lost one. Messages
		// that still come do not postpone the question: some custom nodes send figures of the
		// machine every second.
		due = r.asked.Add(min(s.StallTimeout, lookAgain))
	}
	if end := r.startedAt.Add(s.JobTimeout); r.mayOverrun(s) && end.Before(due) {
		return end
	}
	return due
}

// silent handles a silence by asking the instance what it is doing.
func (r looking) silent(ctx context.Context) result {
	if r.down != nil && r.outOfReach() {
		return r.unreachable()
	}
	if time.Now().Before(r.askDue()) {
		return result{}
	}
	s := r.d.Settings()
	if r.mayOverrun(s) && time.Since(r.startedAt) >= s.JobTimeout {
		r.log.Warn("run exceeds job_timeout, interrupting it")
		r.stop = stop{cause: overtime, at: time.Now(), node: r.node}
		r.interrupt(ctx)
		return result{}
	}
	return r.look(ctx)
}

// mayOverrun reports whether the run can still exceed the job timeout.
func (r looking) mayOverrun(s Settings) bool {
	return s.JobTimeout > 0 && r.phase == executing && r.stop.cause == notStopped
}

// look asks the instance itself whether it still has the run. It reads the queue first: a run that
// ends in between is then found in the history, so if it is in neither place, it is gone.
func (r looking) look(ctx context.Context) result {
	ctx, cancel := context.WithTimeout(ctx, r.d.Settings().ContactTimeout)
	defer cancel()
	defer func() { r.asked = time.Now() }()
	queue, err := r.conn.Client.Queue(ctx)
	if err != nil {
		r.log.Debug("instance does not answer", "error", err)
		return result{}
	}
	switch {
	case slices.ContainsFunc(queue.Running, r.is):
		return r.stuck(ctx)
	case slices.ContainsFunc(queue.Pending, r.is):
		return r.behind(ctx, queue)
	}
	found, err := r.conn.Client.HasEnded(ctx, r.Lease().Upstream)
	switch {
	case err != nil:
		return result{}
	case found:
		if r.mail.hasFrame() || r.saidLate(ctx) {
			return result{} // it was only late
		}
		r.missed.messages = true // the final messages did not come
		return result{kind: instanceDone}
	case !r.missed.messages && r.conn.CaughtUp(ctx) == nil: // a socket ends with its process
		if r.mail.hasFrame() {
			return result{} // it has ended, and somebody has removed the record
		}
		return result{kind: lost, cause: Refused, reason: "the instance has taken the prompt and does not have it, although it was not restarted"}
	case r.phase == executing:
		return result{kind: killed, died: true, reason: "the instance died" + r.where() + ", and was restarted"}
	default:
		return result{kind: lost, died: true, reason: "the instance no longer knows the prompt: it was restarted"}
	}
}

// sayLate is how long messages that an instance sent before an answer may still be on their way.
const sayLate = 5 * time.Second

// saidLate reports whether messages of the run were still on their way. If not, the socket only
// looks open: it leads nowhere, or ComfyUI has silenced it. Then it is opened again, for the runs
// that follow.
func (r looking) saidLate(ctx context.Context) bool {
	if r.missed.messages {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, sayLate)
	defer cancel()
	_ = r.conn.Socket.CaughtUp(ctx) // a socket that does not answer is lost too
	if r.mail.hasFrame() {
		return true
	}
	r.reopenSocket()
	return false
}

// reopenSocket reopens a socket that is open but says nothing.
func (r looking) reopenSocket() {
	r.log.Warn("no messages from the instance; reopening its event socket")
	r.conn.Reopen()
}

// behind takes the prompt back if it is waiting at the instance behind somebody else's: it would
// wait there while other instances are idle.
func (r looking) behind(ctx context.Context, queue comfyui.Queue) result {
	if time.Since(r.heard) < foreignPatience || r.phase == executing {
		return result{}
	}
	if len(queue.Running) == 0 {
		if time.Since(r.heard) > min(beginTimeout, r.d.Settings().StallTimeout) {
			return r.markUnhealthy(ctx, "it accepts prompts but does not start them")
		}
		return result{}
	}
	if slices.ContainsFunc(queue.Running, r.conn.Has) {
		return result{} // one of the hub's own
	}
	if !r.removed(ctx) {
		return result{}
	}
	r.d.Rests.NotTaken(r.conn, r.Job().Key, false) // whoever is using it may go on doing so
	return result{kind: excused, cause: InUse, reason: "it waited behind a prompt of somebody else"}
}

// stuck judges a run that the instance shows as running but that says nothing.
func (r looking) stuck(ctx context.Context) result {
	quiet, stall := time.Since(r.heard), r.d.Settings().StallTimeout
	switch {
	case r.isAhead():
		// The run before it has just ended: this one is judged once it has had its turn.
	case r.phase < executing && !r.missed.messages && quiet > min(beginTimeout, stall):
		if !r.postedAt.IsZero() && !r.conn.HeardSince(r.postedAt) {
			// ComfyUI tells every socket when its queue grows, so this one is mute.
			r.reopenSocket()
			following(r).resume(ctx)
			return result{}
		}
		return r.markUnhealthy(ctx, "it lists a prompt as running but does not start it")
	case r.stop.cause == hung:
		if time.Since(r.stop.at) > min(interruptTimeout, stall) {
			return r.markUnhealthy(ctx, "a run hangs and cannot be interrupted")
		}
	case r.phase == executing && quiet > r.hangAfter():
		r.log.Warn("no progress for too long; interrupting the run", "silent_s", int(quiet.Seconds()))
		r.stop = stop{cause: hung, at: time.Now(), node: r.node}
		r.interrupt(ctx)
	}
	return result{}
}

// hangAfter returns the silence after which the run is interrupted. It is never shorter than
// StallTimeout.
func (r looking) hangAfter() time.Duration {
	stall := r.d.Settings().StallTimeout
	s, ok := schedule.DecodeStructure(r.Job().Shape)
	if !ok {
		return hangFactor * stall
	}
	// Only runs that had to load their models tell how long that takes. There is no telling whether
	// a run that was taken over had to.
	longest, runs := r.d.Durations.Known.Longest(s, r.d.Reports.Gpu(r.conn.Name), r.cold || r.mark == 0)
	if runs < hangRuns {
		return max(hangFactor*stall, hangLate*longest)
	}
	return max(min(hangFactor*stall, hangSoon*longest), hangLate*longest, stall)
}

// markUnhealthy gives up on an instance that answers but does not work. Its agent restarts it, if
// it has one that may; after a restart it counts as healthy again.
func (r looking) markUnhealthy(ctx context.Context, why string) result {
	r.log.Error("instance is unhealthy", "reason", why)
	r.d.Fleet.SetSick(r.conn.Name, why)
	if err := r.conn.Client.Restart(ctx); err != nil {
		r.log.Warn("instance is not restarted", "error", err)
	}
	return result{kind: lost, cause: Hung, reason: why}
}

// unload removes the prompt from its instance if it is waiting there behind another run, and
// reports whether it is certain not to run.
func (r looking) unload(ctx context.Context) bool {
	return r.phase == posted && r.isAhead() && r.removed(ctx)
}

// removed removes a waiting prompt from its instance, and reports whether it has certainly not
// begun.
func (r looking) removed(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := r.conn.Client.DeleteQueued(ctx, r.Lease().Upstream); err != nil {
		return false
	}
	left, err := r.conn.Client.Queue(ctx)
	if err != nil || slices.ContainsFunc(append(left.Running, left.Pending...), r.is) {
		return false // it has just begun, or there is no telling
	}
	// It may have begun and ended before the delete. The history is read last, so if it is in
	// neither place, it never ran.
	found, err := r.conn.Client.HasEnded(ctx, r.Lease().Upstream)
	return err == nil && !found
}

// outOfReach reports whether it has been so long since there was proof that the run is going on
// that it counts as lost. If nothing else could run the job, it is worth waiting longer: the run
// may be going on at an instance that just cannot be heard.
func (r looking) outOfReach() bool {
	now, contact := time.Now(), r.d.Settings().ContactTimeout
	if r.d.Reports.Vouched(r.Lease()) {
		r.provenAt = now
	}
	seen := r.conn.LastSeen()
	proven := r.provenAt
	if seen.After(proven) {
		proven = seen
	}
	patience := r.d.Reports.Patience(r.conn.Name)
	if !instance.Gone(r.down) && len(r.elsewhere()) == 0 {
		patience = vouchFactor * contact
	}
	return now.Sub(proven) > patience || now.Sub(seen) > vouchFactor*contact
}

// unreachable is the result of a run whose instance is out of reach.
func (r looking) unreachable() result {
	return result{
		kind: lost, cause: lossOf(r.down), died: instance.Gone(r.down), asked: instance.Asked(r.down),
		reason: "the instance cannot be reached: " + r.down.Error(),
	}
}
