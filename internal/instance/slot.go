package instance

import (
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
)

// slot is the place for runs at an instance: whether there is one, and who has it.
type slot struct {
	name  string
	fleet *fleet.Registry
	link  *Link
	sets  *FreeSets
	past  *past

	mu sync.Mutex
	// reached says that the socket is open and the instance answers, so that it can be asked about
	// its runs. open says that its abilities are known too, so that it can get jobs.
	reached, open bool
	// able says that its abilities are known, and byID that an interrupt stops only the run that it
	// names.
	able, byID bool
	current    Holder
	// ahead waits at the instance behind the current run. begun is the run that started to execute
	// last, and began is when.
	ahead, begun Holder
	began        time.Time
}

// takesJobs reports whether the instance can take a job. The caller holds the lock.
func (s *slot) takesJobs() bool { return s.open && s.current == nil && s.able }

// takesAhead reports whether the instance can take a job behind its run. On older servers an
// interrupt stops whatever is running, so one meant for the run could hit the job that has just
// begun behind it. The caller holds the lock.
func (s *slot) takesAhead() bool {
	return s.byID && s.open && s.current != nil && s.begun == s.current && s.ahead == nil && s.able
}

// changed keeps the link's place in the sets up to date. Call it after each change of what takesJobs
// and takesAhead read, under the same lock.
func (s *slot) changed() {
	if s.link.Kind == fleet.KindOverflow {
		s.sets.Apart.set(s.link, s.takesJobs())
		return
	}
	s.sets.Free.set(s.link, s.takesJobs())
	s.sets.Next.set(s.link, s.takesAhead())
	s.sets.Holding.set(s.link, s.ahead != nil)
}

// reach notes that the instance answers, and its version.
func (s *slot) reach(version comfyui.Version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reached, s.byID = true, version.InterruptByID()
}

// enable notes whether it is known what the instance can run.
func (s *slot) enable(able bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.able = able
	s.changed()
}

// admit notes that the instance can take jobs.
func (s *slot) admit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = true
	s.past.freed()
	s.changed()
}

// shut notes that the socket is lost, and reports whether that is news.
func (s *slot) shut() (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = s.reached
	s.reached, s.open = false, false
	s.changed()
	return changed
}

// IsReached reports whether the instance can be asked about its runs.
func (s *slot) IsReached() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reached
}

// IsOpen reports whether the instance answers and its abilities are known.
func (s *slot) IsOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// vacant reports whether the instance can take a job now.
func (s *slot) vacant() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takesJobs()
}

// behind returns the run behind which the instance can take a job; nil if it cannot.
func (s *slot) behind() Holder {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.takesAhead() {
		return nil
	}
	return s.current
}

// Runs returns the current run and the one that waits behind it. Either may be nil.
func (s *slot) Runs() [2]Holder {
	s.mu.Lock()
	defer s.mu.Unlock()
	return [...]Holder{s.current, s.ahead}
}

// IsAhead reports whether a run is waiting at the instance behind another one.
func (s *slot) IsAhead(r Holder) bool { return s.Runs()[1] == r }

// Begins notes that the instance is executing a run, so that the next one may follow.
func (s *slot) Begins(r Holder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun, s.began = r, time.Now()
	s.changed()
}

// Since returns when the instance began to execute a run; zero if it has not begun.
func (s *slot) Since(r Holder) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun != r {
		return time.Time{}
	}
	return s.began
}

// Attach makes a run the receiver of the instance's messages. Call it before the POST: frames of a
// run can arrive before the reply.
func (s *slot) Attach(r Holder) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		return false
	}
	s.current = r
	s.changed()
	return true
}

// AttachAhead is Attach for a run that waits behind the current one. ComfyUI starts it by itself when
// the current one ends; until then it can be taken back from ComfyUI's own queue.
func (s *slot) AttachAhead(r Holder) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil || s.ahead != nil {
		return false
	}
	s.ahead = r
	s.changed()
	return true
}

// report tells the fleet that the instance is busy with a run, unless the run has been detached: an
// instance can refuse a prompt before the hub gets this far, and would then be shown as busy for
// ever.
func (s *slot) report(r Holder) (reported bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != r {
		return false
	}
	s.fleet.SetRunning(s.name, r.Job().ID)
	return true
}

// Detach frees the instance, so it may take another job. It reports whether the run had it.
func (s *slot) Detach(r Holder) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r {
	case s.ahead:
		s.ahead = nil
		s.changed()
		return true
	case s.current:
	default:
		return false
	}
	s.past.left(r.Job())
	s.moveUp()
	return true
}

// moveUp ends the current run's turn. The caller holds the lock.
func (s *slot) moveUp() {
	if s.begun == s.current {
		s.begun = nil
	}
	s.current, s.ahead = s.ahead, nil
	s.changed()
	if next := s.current; next != nil {
		s.fleet.SetRunning(s.name, next.Job().ID)
		next.Tell(Event{Kind: Next})
	} else {
		s.fleet.SetRunning(s.name, "")
	}
}
