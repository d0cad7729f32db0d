package run

import "time"

// Settings may change while runs go on.
type Settings struct {
	// StallTimeout is how long an instance may be silent in the middle of a run before it is asked
	// what it is doing.
	StallTimeout time.Duration
	// ContactTimeout is how long an instance may be unreachable in the middle of a run before the
	// run counts as lost.
	ContactTimeout time.Duration
	// JobTimeout bounds one run; 0 means no bound.
	JobTimeout time.Duration
	// UnrunnableTimeout is how long a job waits for an instance that could run it.
	UnrunnableTimeout time.Duration
	// Split lets idle instances make the batch of one job together.
	Split bool
	// Ahead gives an instance its next job while it is still running one.
	Ahead bool
}
