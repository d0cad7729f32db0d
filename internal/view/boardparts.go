package view

import (
	"context"
	"slices"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/stats"
)

// Fault is something that has gone wrong.
type Fault = stats.Fault

// TrendBucket is what happened within TrendWidth.
type TrendBucket = stats.Bucket

// TrendWidth is the time that one TrendBucket covers.
const TrendWidth = stats.Width

// Outcomes returns the ends of runs that trends count.
func Outcomes() []string { return stats.Outcomes() }

// Figures are how the fleet has done lately, and what tenants have used.
type Figures struct {
	DB      *redis.DB
	Buckets *stats.Trends
	Noted   *stats.Faults
	Insight *Insight
}

// Trends returns how the whole fleet has done within the last day, the oldest bucket first.
func (s *Figures) Trends(ctx context.Context) ([]TrendBucket, error) { return s.Buckets.Day(ctx) }

// Faults returns what has gone wrong within the last day as far as a viewer may see it, the newest
// first: the faults of its own jobs and prompts, or everybody's for an operator, and those of
// instances, without the reason if the viewer may not learn it.
func (s *Figures) Faults(ctx context.Context, v Viewer) ([]Fault, error) {
	all, err := s.Noted.List(ctx)
	if err != nil {
		return nil, err
	}
	clean, seesAll := s.Insight.WithoutAddresses(v), s.Insight.SeesAll(v)
	all = slices.DeleteFunc(all, func(f Fault) bool { return f.Tenant != "" && f.Tenant != v.Tenant && !v.Operator })
	for n := range all {
		f := &all[n]
		if f.Reason = clean(f.Reason); f.Tenant == "" && !seesAll {
			f.Reason = ""
		}
	}
	return all, nil
}
