package dispatch

// verdict is what becomes of a run.
type verdict int

const (
	// undecided: the run goes on.
	undecided verdict = iota
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
	// killed: as lost, because the instance's process died while it had the
	// prompt. A machine or a network that went away is no proof of that.
	killed
	// dropped: another hub has the job, or this hub stops; change nothing.
	dropped
)

// result is a verdict with its data. The zero value is undecided.
type result struct {
	verdict verdict
	// reason says in plain words why a run was lost, excused or killed.
	reason string
	// ending is the end of a finished run.
	ending ending
}
