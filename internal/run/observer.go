package run

import (
	"time"

	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
)

// Observer takes measurements. Every job calls it, so its methods must be quick and must not block.
type Observer interface {
	// Dispatched is told that an instance was given a job: how long the job waited and for how much
	// of that time an instance that could run it was idle.
	Dispatched(instance string, waited, gap time.Duration)
	// Finished is told of the end of a run.
	Finished(e End)
	// Retried is told that a job is waiting again because its run was lost.
	Retried(cause Cause)
	// Adopted is told that this hub has taken over a run.
	Adopted(from Origin)
	// Switched is told that a run is beginning for which the instance must load other models than it
	// has; or, if that is saved, that it gets a job because it has the job's models loaded, where
	// otherwise some would have to be loaded.
	Switched(instance string, saved bool)
}

// End is the end of a run.
type End struct {
	// Instance is empty if none was needed: the job has the result of an equal one.
	Instance string
	// Band is the job's.
	Band job.Band
	// Outcome is done, failed, cancelled, lost (it will run again), or rejected (refused
	// while the client's POST waited).
	Outcome string
	// Ran is how long the instance executed it; 0 if it had not begun.
	Ran time.Duration
	// Took is the time from the job's acceptance to its end; 0 if the job has not ended.
	Took time.Duration
}

// Cause is why a run was lost and its job runs again.
type Cause string

// The causes.
const (
	// Died: the instance's process ended, or its GPU failed.
	Died Cause = "died"
	// Restarted: somebody restarted the instance on purpose.
	Restarted Cause = "restarted"
	// Unreachable: the instance could not be reached.
	Unreachable Cause = "unreachable"
	// Hung: the instance was silent for too long.
	Hung Cause = "hung"
	// OutOfMemory: the GPU ran out of memory.
	OutOfMemory Cause = "out_of_memory"
	// Refused: the instance did not take the prompt.
	Refused Cause = "refused"
	// Failed: the instance reported an error, as it did in its last runs, while others had none.
	Failed Cause = "failed"
	// InUse: the instance is running something else.
	InUse Cause = "in_use"
	// Results: the results of the run could not be read from the instance.
	Results Cause = "results"
	// Storage: the hub's storage could not be used.
	Storage Cause = "storage"
	// Redis: the hub's Redis could not be used.
	Redis Cause = "redis"
	// Evicted: the instance was drained, or the run made way for an interactive job.
	Evicted Cause = "evicted"
	// OtherCause is everything else.
	OtherCause Cause = "other"
)

// Causes returns all causes.
func Causes() []Cause {
	return []Cause{Died, Restarted, Unreachable, Hung, OutOfMemory, Refused, Failed, InUse, Results, Storage, Redis, Evicted, OtherCause}
}

// Origin is where a run was taken over from.
type Origin string

// The origins.
const (
	// Own is an earlier process of this hub.
	Own Origin = "own"
	// Silent is another hub whose process is gone.
	Silent Origin = "silent"
	// Expired is a hub that did not renew the lease in time.
	Expired Origin = "expired"
)

// Origins returns all origins.
func Origins() []Origin { return []Origin{Own, Silent, Expired} }

// Unobserved returns an Observer that takes no measurements.
func Unobserved() Observer { return unobserved{} }

type unobserved struct{}

func (unobserved) Dispatched(string, time.Duration, time.Duration) {}
func (unobserved) Finished(End)                                    {}
func (unobserved) Retried(Cause)                                   {}
func (unobserved) Adopted(Origin)                                  {}
func (unobserved) Switched(string, bool)                           {}

// finished tells the observer of the end of the run.
func (r finishing) finished(outcome string, took time.Duration) {
	j := r.Job()
	if j.Parent != "" && outcome != "lost" {
		outcome = "part" // the job is counted once
	}
	r.trace.Outcome(outcome, outcome == string(job.Failed) || outcome == "lost")
	r.d.Observe.Finished(End{Instance: j.Run.Instance, Band: j.Band(), Outcome: outcome, Ran: r.ran(), Took: took})
}

// retried tells the observer that the job is waiting again.
func (r finishing) retried(cause Cause) {
	r.trace.Retried(string(cause))
	r.d.Observe.Retried(cause)
}

// lossOf returns the cause of a run that was lost with its connection.
func lossOf(err error) Cause {
	if instance.Gone(err) {
		return Died
	}
	return Unreachable
}

// lostBy returns why a run with this result was lost.
func (r result) lostBy() Cause {
	switch {
	case r.cause != "":
		return r.cause
	case r.died || r.kind == killed:
		return Died
	}
	return OtherCause
}
