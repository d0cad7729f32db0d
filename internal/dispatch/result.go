package dispatch

import "time"

// resultKind is what becomes of a run.
type resultKind int

const (
	// undecided: the run goes on.
	undecided resultKind = iota
	// instanceDone: the instance has finished with it, well or not.
	instanceDone
	// jobEnded: the job has ended, and result.ending says how.
	jobEnded
	// timedOut: as jobEnded, with the error that it exceeded job_timeout.
	timedOut
	// crashed: the hub itself has failed; the job ends with that error.
	crashed
	// rejected: the instance's refusal was the answer to the client, as if there
	// had never been such a job.
	rejected
	// lost: the instance or its work is gone; the job must run elsewhere.
	lost
	// excused: as lost, and the job was not to blame.
	excused
	// unused: it was taken back from its instance. It goes back to the queue as if it had
	// never been given out.
	unused
	// hopeless: as lost, and no other attempt can work.
	hopeless
	// killed: as lost, because the instance's process died while it had the
	// prompt. A machine or a network that went away is no proof of that.
	killed
	// dropped: another hub has the job, or this hub stops; change nothing.
	dropped
)

// result is what becomes of a run, and why. The zero value is undecided.
type result struct {
	kind resultKind
	// reason says in plain words why a run was lost, excused, hopeless or killed.
	reason string
	// cause is the same for the metrics; empty where verdict and died say it.
	cause Cause
	// died says that a run was lost or killed because the instance's process ended, and
	// asked that somebody wanted that.
	died, asked bool
	// anywhere says that the cause of an excused run would be the same at another
	// instance, so that the job had better wait.
	anywhere bool
	// elsewhere says that the job of an excused run had better run at another instance.
	elsewhere bool
	// ending is the end of a finished run.
	ending ending
}

// blames reports whether the job had better run at another instance. One that was too small
// for it has made room since, and a smaller one does not help.
func (r result) blames() bool {
	return r.elsewhere || (r.kind == lost || r.kind == killed) && r.cause != OutOfMemory
}

const (
	// firstPause and longestPause bound how long an excused job waits before it is
	// tried again, twice as long each time.
	firstPause   = 500 * time.Millisecond
	longestPause = time.Minute
	// freeExcuses is how many excused runs cost no pause when only the instance
	// was to blame: others may be idle.
	freeExcuses = 8
)

// pause is how long the job of an excused run must wait. before is how many of its
// runs were excused earlier. The first time it does not wait: most causes are over
// at once.
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
