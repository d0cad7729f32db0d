package view

import (
	"context"
	"fmt"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/refusal"
)

// waitsFor says in plain words what a waiting job is waiting for: the operator, its tenant's
// limits, or an instance.
func (s *Insight) waitsFor(ctx context.Context, j job.Job, needs catalog.Requirements) string {
	switch {
	case s.Stops.Has(queue.StopAll):
		return "the operator has paused the queue"
	case s.Stops.Has(queue.StopTenant(j.Tenant)):
		return "the operator has paused your prompts"
	}
	limits := s.LimitsOf(j.Tenant)
	if limits.Running > 0 || limits.GPUTime > 0 {
		usage, err := s.Queue.Usage(ctx, j.Tenant)
		switch {
		case err != nil: // what can be said without Redis is better than nothing
		case limits.Running > 0 && usage.Running >= limits.Running:
			return fmt.Sprintf("waiting for one of your own jobs to end: no more than %d of them run at once (tenant_limits running)", limits.Running)
		case limits.GPUTime > 0 && usage.Spent >= limits.GPUTime:
			return fmt.Sprintf("your GPU time of the last 24 hours is used up (tenant_limits gpu_seconds); it goes on in %s", refusal.InMinutes(usage.Wait))
		}
	}
	if instance := s.Dispatch.Forecasts.WaitsFor(j.Key); instance != "" {
		return "waiting for " + instance + ": it has the models loaded, and will have finished this job sooner than an idle instance"
	}
	return s.Dispatch.Waiting.Explain(needs, j.Tenant)
}
