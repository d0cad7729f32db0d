package hub

import (
	"context"
	"slices"

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

// Trends returns how the whole fleet has done within the last day, the oldest bucket first.
func (h *Hub) Trends(ctx context.Context) ([]TrendBucket, error) { return h.recorder.trends.Day(ctx) }

// Faults returns what has gone wrong within the last day as far as a viewer may see it, the newest
// first: the faults of its own jobs and prompts, or everybody's for an operator, and those of
// instances, without the reason if the viewer may not learn it.
func (h *Hub) Faults(ctx context.Context, v Viewer) ([]Fault, error) {
	all, err := h.recorder.faults.List(ctx)
	if err != nil {
		return nil, err
	}
	clean, seesAll := h.insight.withoutAddresses(v), h.insight.SeesAll(v)
	all = slices.DeleteFunc(all, func(f Fault) bool { return f.Tenant != "" && f.Tenant != v.Tenant && !v.Operator })
	for n := range all {
		f := &all[n]
		if f.Reason = clean(f.Reason); f.Tenant == "" && !seesAll {
			f.Reason = ""
		}
	}
	return all, nil
}

// Preview returns the latest picture of the run at an instance, and its media type, if the viewer
// may see it and this hub follows the run.
func (b *Board) Preview(v Viewer, instance string) (picture []byte, kind string, ok bool) {
	s := b.sightOf(v)
	r := b.dispatch.Instances.Activity(instance)
	if r.Job.Key == "" || !s.sees(r.Job.Tenant) {
		return nil, "", false
	}
	p, ok := b.dispatch.Instances.Preview(instance, r.Job.Key)
	if !ok {
		return nil, "", false
	}
	if kind = mediaTypeOf(p); kind == "" {
		return nil, "", false
	}
	return p.Image, kind, true
}
