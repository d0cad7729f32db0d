package run

import (
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
)

// resultKind is what became of a run.
type resultKind int

const (
	// undecided: the run is going on.
	undecided resultKind = iota
	// instanceDone: the instance has finished with it, well or not.
	instanceDone
	// jobEnded: the job has ended, and the result says how.
	jobEnded
	// timedOut: as jobEnded, with an error saying that it exceeded job_timeout.
	timedOut
	// crashed: the hub itself failed; the job ends with that error.
	crashed
	// rejected: the client got the instance's refusal as its answer, as if there had never been
	// such a job.
	rejected
	// lost: the instance or its work is gone; the job must run elsewhere.
	lost
	// excused: as lost, but the job was not to blame.
	excused
	// unused: it was taken back from its instance. The job goes back to the queue as if it had
	// never been given out.
	unused
	// hopeless: as lost, and no other attempt can succeed.
	hopeless
	// killed: as lost, because the instance's process died while it had the prompt. A machine or
	// network that went away does not prove that.
	killed
	// dropped: another hub has the job, or this hub is stopping; change nothing.
	dropped
)

// result is what became of a run, and why, and how its job ends if it does. The zero value is
// undecided.
type result struct {
	kind resultKind
	// state is the one in which a job ends, entry its history entry, and messages are those that
	// come before status and executing null.
	state    job.State
	entry    []byte
	messages [][]byte
	// reason says in plain words why a run was lost, excused, hopeless or killed.
	reason string
	// cause is the same for the metrics; empty if kind and died say it.
	cause Cause
	// died says that a run was lost or killed because the instance's process ended, and asked that
	// somebody wanted that.
	died, asked bool
	// anywhere says that the cause of an excused run would be the same on any other instance, so
	// that the job had better wait.
	anywhere bool
	// elsewhere says that the job of an excused run had better run on another instance.
	elsewhere bool
}

// blames reports whether the job had better run on another instance. An instance that was too small
// for it has freed memory since, and a smaller one is no help.
func (r result) blames() bool {
	return r.elsewhere || (r.kind == lost || r.kind == killed) && r.cause != OutOfMemory
}

const (
	// firstPause and longestPause bound how long an excused job waits before it is tried again,
	// twice as long each time.
	firstPause   = 500 * time.Millisecond
	longestPause = time.Minute
	// freeExcuses is how many excused runs cost no pause if only the instance was to blame: others
	// may be idle.
	freeExcuses = 8
)

// pause returns how long the job of an excused run must wait. before is how many of its runs were
// excused earlier. The first time there is no wait: most causes go away at once.
func (r result) pause(before int) time.Duration {
	free := 1
	if !r.anywhere {
		free = freeExcuses
	}
	if r.kind != excused || before < free {
		return 0
	}
	return min(firstPause<<min(before-free, 10), longestPause)
}
