package view

import (
	"context"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// Limits are a tenant's limits, and what it is using of them.
type Limits struct {
	config.TenantLimits

	// Used is the instance time of the last day.
	Used queue.Usage
	// NowRunning and NowWaiting are how many of its jobs are running and waiting.
	NowRunning, NowWaiting int
}

// Limits returns those of a viewer's tenant. The hub must have started.
func (s Finder) Limits(ctx context.Context, v Viewer) (Limits, error) {
	l := Limits{TenantLimits: s.LimitsOf(v.Tenant)}
	var err error
	if l.Used, err = s.Queue.Usage(ctx, v.Tenant); err != nil {
		return l, err
	}
	live, waiting, err := s.Queue.CountOf(ctx, v.Tenant)
	l.NowRunning, l.NowWaiting = max(live-waiting, 0), waiting
	return l, err
}
