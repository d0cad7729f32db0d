package dispatch

import (
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
)

// signal wakes the loop when there may be work.
type signal struct {
	ch chan struct{}
	// news counts the calls of Wake.
	news atomic.Uint64
	// arrived is the last job that was accepted with none ahead of it.
	arrived atomic.Pointer[newcomer]
}

func newSignal() *signal { return &signal{ch: make(chan struct{}, 1)} }

// newcomer is a job that was accepted when none was ahead of it. news is the counter at that time:
// once it has changed, other jobs may be ahead.
type newcomer struct {
	job  job.Job
	news uint64
}

// Wake makes the dispatcher look for work at once. It never blocks.
func (s *signal) Wake() {
	s.news.Add(1)
	s.Freed()
}

// arrive is Wake for a job that this hub has accepted with position others ahead of it.
func (s *signal) arrive(j job.Job, position int) {
	a := &newcomer{j, s.news.Add(1)}
	if position == 0 {
		s.arrived.Store(a)
	}
	s.Freed()
}

// Freed makes the dispatcher look for work for an instance that is now idle. It does not look at a
// queue that it has found empty since the last Wake.
func (s *signal) Freed() {
	select {
	case s.ch <- struct{}{}:
	default:
	}
}

// freedAfter calls Freed after a while.
func (s *signal) freedAfter(wait time.Duration) { time.AfterFunc(wait, s.Freed) }

// WakeIn makes the dispatcher look for work after a while.
func (s *signal) WakeIn(after time.Duration) {
	time.AfterFunc(after, s.Wake) // Wake is harmless after Close
}
