package instance

import (
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/schedule"
)

const (
	// FirstRest and longestRest bound how long a job is not tried again where it was not taken,
	// twice as long each time. A job that was never tried again would wait beside an idle instance
	// for ever; one that was tried again at once would keep the instance from all others.
	FirstRest   = 5 * time.Second
	longestRest = 5 * time.Minute
	// maxRefused bounds how many jobs are remembered; most of them have ended by then.
	maxRefused = 1000
)

// Refusals remembers which jobs an instance, or this hub, did not take, and how long each is not
// tried there again.
type Refusals struct {
	mu   sync.Mutex
	jobs map[string]refused
}

// refused is what is remembered of a job.
type refused struct {
	times int
	rest  time.Duration
	until time.Time
	// itself says that the instance has looked at the prompt and refused it. It will do so again
	// unless it changes.
	itself bool
}

// Note remembers that a job was not taken. It returns how long the job rests, and how often that
// has happened before.
func (s *Refusals) Note(key string, first time.Duration, itself bool) (rest time.Duration, before int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if len(s.jobs) >= maxRefused {
		for key, r := range s.jobs {
			if now.After(r.until) {
				delete(s.jobs, key)
			}
		}
	}
	if s.jobs == nil || len(s.jobs) >= maxRefused {
		s.jobs = map[string]refused{}
	}
	r := s.jobs[key]
	before = r.times
	r.times++
	r.rest = min(max(2*r.rest, first), longestRest)
	r.until, r.itself = now.Add(r.rest), r.itself || itself
	s.jobs[key] = r
	return r.rest, before
}

// Has reports whether a job is resting.
func (s *Refusals) Has(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.jobs[key].until)
}

// Itself reports whether the instance has looked at the prompt and refused it.
func (s *Refusals) Itself(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs[key].itself
}

// Add adds the resting jobs to what an instance has refused.
func (s *Refusals) Add(to *schedule.Idle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.jobs) == 0 {
		return
	}
	now := time.Now()
	for key, r := range s.jobs {
		if now.Before(r.until) {
			to.Refuse(key)
		}
	}
}

// Any reports whether a job is resting.
func (s *Refusals) Any() bool {
	var all schedule.Idle
	s.Add(&all)
	return len(all.Refused) > 0
}

// forget lets all jobs try again.
func (s *Refusals) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs = nil
}
