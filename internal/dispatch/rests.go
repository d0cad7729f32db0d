package dispatch

import "time"

// rests remembers where jobs were not taken, and wakes the loop when they may be tried there again.
type rests struct {
	signal *signal
	// here are the jobs that this hub cannot run.
	here refusals
	// first is firstRest, except in tests.
	first time.Duration
}

// notTaken remembers that an instance did not take a job, and looks for work again when the job may
// be tried there once more. itself says that the instance has refused the prompt.
func (r *rests) notTaken(conn *connection, key string, itself bool) {
	rest, _ := conn.refused.note(key, r.first, itself)
	r.signal.wakeIn(rest)
}

// notHere remembers that this hub cannot run a job, though another one may. It returns how often
// that has happened before.
func (r *rests) notHere(key string) (before int) {
	rest, before := r.here.note(key, r.first, false)
	r.signal.wakeIn(rest)
	return before
}
