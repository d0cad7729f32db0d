package run

import (
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
)

// phase is how far a run has got. A run never goes back.
type phase int

const (
	// preparing: the instance does not have the prompt.
	preparing phase = iota
	// posted: the instance may have the prompt but has not begun it.
	posted
	// executing: the instance is executing the prompt.
	executing
	// released: the instance has finished with the prompt and may have another.
	released
	// ended: the queue has the end of the run.
	ended
)

// wish is what the client wants to happen to the run.
type wish int

const (
	// wanted: the run is to go on.
	wanted wish = iota
	// cancelled: the run is to end.
	cancelled
	// withdrawn: as cancelled, and nobody is to hear about the run any more.
	withdrawn
)

// stopCause says why the hub interrupted a run without being asked.
type stopCause int

const (
	notStopped stopCause = iota
	// overtime: it ran longer than job_timeout allows.
	overtime
	// hung: it was silent for too long.
	hung
	// evicted: its instance is needed for something else.
	evicted
	// partUnwell: another part of its job has not ended well.
	partUnwell
)

// stop is the hub's own interrupt of a run; its zero value means none.
type stop struct {
	cause stopCause
	at    time.Time
	// node is the node that was executing at the time.
	node string
}

// missed is what the client was not shown at the time.
type missed struct {
	// messages: the socket was down, or another hub followed the run before.
	messages bool
	// outputs: they could not be named, because Redis or the instance was away.
	outputs bool
}

// state is where a run stands, and everything that its end depends on.
type state struct {
	phase phase
	// startedAt is when the instance began to execute; zero until then.
	startedAt time.Time
	// node is the node that is executing now, as the client's graph knows it.
	node   string
	wish   wish
	stop   stop
	missed missed
	// resends says that an earlier run of the job has lost results that went over a socket.
	resends bool
}

// record is what an instance's record of a finished run says, as far as the end of the run depends
// on it.
type record struct {
	// state is the state that the last message of the run puts the job in.
	state job.State
	// interrupted says that the record ends with an interrupt.
	interrupted bool
	// socketOnly is an output node whose results are only in messages; "" if there is none.
	// cachedOnly is one whose results the instance did not send in this run, because it had them
	// from an earlier one.
	socketOnly, cachedOnly string
}

// overSocket is part of the reason when a run has lost such a result. The job keeps the reason.
const overSocket = "went over a socket that was lost"

// hasLostResults reports whether an earlier run of a job has lost a result that went over a socket.
func hasLostResults(j job.Job) bool {
	return slices.ContainsFunc(j.Lost, func(reason string) bool { return strings.Contains(reason, overSocket) })
}

// judge decides what becomes of a run that its instance has finished with: jobEnded, timedOut,
// lost, excused or unused.
func (s state) judge(rec record) (v resultKind, reason string) {
	switch {
	case s.stop.cause == hung && s.wish == wanted && rec.interrupted:
		return lost, "it was silent for too long and was interrupted"
	case s.stop.cause == evicted && s.wish == wanted && rec.interrupted:
		return unused, ""
	case s.stop.cause == overtime && rec.state == job.Cancelled:
		return timedOut, ""
	case s.missed.messages && rec.state == job.Done && rec.socketOnly != "":
		return excused, "the result of node " + rec.socketOnly + " " + overSocket
	case s.resends && rec.state == job.Done && rec.cachedOnly != "":
		return excused, "the result of node " + rec.cachedOnly + " " + overSocket + ", and the instance did not send it again"
	}
	return jobEnded, ""
}

// judgedCause returns why judge called a run lost or excused.
func (s state) judgedCause() Cause {
	if s.stop.cause == hung {
		return Hung
	}
	return Results
}

// owesOutputs reports whether the client must still be shown outputs of a run that ended in the
// given state.
func (s state) owesOutputs(end job.State) bool {
	return s.missed.outputs || s.missed.messages && end == job.Done
}

// ran returns how long the run has been executing.
func (s state) ran() time.Duration {
	if s.startedAt.IsZero() {
		return 0
	}
	return time.Since(s.startedAt)
}
