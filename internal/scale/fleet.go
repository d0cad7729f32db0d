package scale

import (
	"context"
	"time"
)

// Fleet is what there is to scale.
type Fleet interface {
	// Look returns what is there and what waits, by class. Work that other servers will have done
	// soon, or that nobody may run now, is left out; a job that several classes can run is the
	// first one's.
	Look(ctx context.Context, classes []Class) (map[string]View, error)
	// Drain keeps jobs from an instance at all hubs, or lets it have some again unless the operator has
	// drained it.
	Drain(ctx context.Context, instance string, on bool) error
}

// View is what a hub sees of a class.
type View struct {
	Instances []Instance
	// Waiting are the learned times of the jobs that wait for an instance of the class.
	Waiting []time.Duration
}

// Instance is one that is there.
type Instance struct {
	Name string
	// Works says that it takes jobs, or would if it were not drained: it is not sick, and nobody
	// else uses it.
	Works bool
	// Stopped says that it gets no jobs because it is drained, by whomever.
	Stopped bool
	// Busy says that it runs something, or that a job is about to run there, or that files of one
	// are still to be fetched.
	Busy bool
	// Left is how long what it runs still takes, 0 if that is not known.
	Left time.Duration
	// Moved changes when the instance becomes idle or busy.
	Moved int64
	// Needed says that it has the models loaded of a job that waits.
	Needed bool
}
