package run

import (
	"sync"

	"github.com/comfyhub/comfyhub/internal/job"
)

// claim is a job that this hub holds, with the lease of its run. The run reads it, keepLeases
// renews the lease meanwhile, and others ask whose job it is, so the job is accessed only through
// these methods.
type claim struct {
	mu  sync.Mutex
	own job.Job
}

// Job returns the job as it stands now.
func (c *claim) Job() job.Job {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own
}

// Lease returns the run as the queue knows it.
func (c *claim) Lease() job.Run { return c.Job().Run }

// take stores the job as the queue gave it out.
func (c *claim) take(j job.Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own = j
}

// relet continues the run under a new fence.
func (c *claim) relet(lease job.Run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own.Run.Fence, c.own.Run.Hub, c.own.Fence = lease.Fence, lease.Hub, lease.Fence
}

// unsplit notes that the job is made as a whole from now on.
func (c *claim) unsplit() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own.Parts, c.own.Whole = nil, true
}

// known notes the prompt id that the instance uses.
func (c *claim) known(upstream string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own.Run.Upstream = upstream
}
