package dispatch

import (
	"time"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/run"
)

// rests remembers where jobs were not taken, and wakes the loop when they may be tried there again.
type rests struct {
	signal *signal
	memory *run.Memory
	// here are the jobs that this hub cannot run.
	here instance.Refusals
	// first is firstRest, except in tests.
	first time.Duration
}

// at returns the jobs that an instance does not get now: it has not taken them lately, nor could
// this hub run them, or a larger one had better.
func (r *rests) at(conn *instance.Link, i fleet.Instance) map[string]bool {
	jobs := map[string]bool{}
	conn.Refused.Add(jobs)
	r.here.Add(jobs)
	r.memory.AvoidSmall(i, jobs)
	return jobs
}

// NotTaken remembers that an instance did not take a job, and looks for work again when the job may
// be tried there once more. itself says that the instance has refused the prompt.
func (r *rests) NotTaken(conn *instance.Link, key string, itself bool) {
	rest, _ := conn.Refused.Note(key, r.first, itself)
	r.signal.WakeIn(rest)
}

// NotHere remembers that this hub cannot run a job, though another one may. It returns how often
// that has happened before.
func (r *rests) NotHere(key string) (before int) {
	rest, before := r.here.Note(key, r.first, false)
	r.signal.WakeIn(rest)
	return before
}
