package instance

import (
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
)

// past is what an instance has run before.
type past struct {
	mu sync.Mutex
	// freeSince is when the instance last became free.
	freeSince time.Time
	// lastClient is the client whose job ran here last, and lastTenant its tenant.
	lastClient, lastTenant string
	// last is the last run that the instance finished. It may not have been released yet.
	last job.Run
}

// freed notes that the instance became free.
func (p *past) freed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.freeSince = time.Now()
}

// left notes that the instance is free of a job's run.
func (p *past) left(j job.Job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.freeSince = time.Now()
	if j.Client != "" {
		p.lastClient, p.lastTenant = j.Client, j.Tenant
	}
}

// Ended notes that the instance has finished a run. A report that still shows the run is out of
// date.
func (p *past) Ended(run job.Run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = run
}

// After returns the last run that the instance finished.
func (p *past) After() job.Run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// IdleFor returns how long the instance has been waiting for work.
func (p *past) IdleFor() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.freeSince)
}

// client returns the client whose job ran here last, and its tenant.
func (p *past) client() (client, tenant string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastClient, p.lastTenant
}

// Usable reports whether the instance may take a job, as far as the fleet knows. A report that
// still shows the run that this hub has just seen end, or an earlier one, is out of date and no
// reason to wait.
func (p *past) Usable(i fleet.Instance) bool {
	switch i.State {
	case fleet.Idle:
		return true
	case fleet.Busy:
		last := p.After()
		if i.Report.Job == last.Key {
			return i.Report.Queue <= 1 && i.Report.Job != ""
		}
		// Fences follow Redis's clock, and an instance runs its prompts in order.
		return i.Report.Job != "" && i.Report.Fence < last.Fence
	case fleet.Sick:
		return i.Aside && i.Running == "" && i.Report.Idle() && i.Report.Foreign == 0
	default:
		return false
	}
}
