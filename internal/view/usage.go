package view

import (
	"context"
	"time"

	"github.com/comfyhub/comfyhub/internal/stats"
)

// UsageDay is what a tenant has used on one day.
type UsageDay = stats.Day

// Errors of [Figures.Usage].
var (
	ErrUsageDays = stats.ErrDays
	ErrUsageMuch = stats.ErrMuch
)

// Usage returns what was used from one day to another, inclusive and by UTC: by the tenant, or for
// an operator by everybody or the tenant that it names. The hub must have started. The error is
// [ErrUsageDays], [ErrUsageMuch], or one of Redis.
func (s *Figures) Usage(ctx context.Context, v Viewer, everybody bool, from, to time.Time) ([]UsageDay, error) {
	tenant := &v.Tenant
	if everybody && v.Operator {
		tenant = nil
	}
	return stats.NewUsage(s.DB).Read(ctx, from, to, tenant)
}
