package dispatch

import (
	"time"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/run"
	"github.com/comfyhub/comfyhub/internal/schedule"
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

// keep keeps the jobs from an instance that it does not get now: it has not taken them lately, nor
// could this hub run them, or a larger one had better.
func (r *rests) keep(from *schedule.Idle, conn *instance.Link, i fleet.Instance) {
	conn.Refused.Add(from)
	r.here.Add(from)
	r.memory.AvoidSmall(i, from)
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
