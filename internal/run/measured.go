package run

import (
	"slices"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// measured learns from a run that ended well.
func (r collecting) measured() {
	s, ok := schedule.DecodeStructure(r.Job().Shape)
	if !ok || r.startedAt.IsZero() || r.endedAt.IsZero() || r.missed.messages || r.allCached() {
		return
	}
	p := schedule.Pair{Structure: s.Key, Kind: s.Kind, GPU: r.d.Reports.Gpu(r.conn.Name)}
	r.d.Durations.Add(p, schedule.Sample{Work: s.Work, Ran: r.endedAt.Sub(r.startedAt), Cold: r.cold})
	if r.division == nil && r.endedAt.Sub(r.startedAt) >= worthSplitting {
		r.d.Durations.AddSpent(p, r.timing.byClass(r.body.Prompt))
	}
	if peak := r.peak.Load(); peak > 0 {
		r.d.Durations.AddNeed(p, schedule.Need{Work: s.Work, Bytes: peak})
	}
}

// allCached reports whether the instance already had the results of all nodes except outputs, so
// that the run says nothing about how long the graph takes.
func (r collecting) allCached() bool {
	if len(r.cached) == 0 {
		return false
	}
	v, err := pyjson.Parse(dividing(r).made())
	graph, ok := v.(*pyjson.Object)
	if err != nil || !ok {
		return false
	}
	for id := range graph.All() {
		if !slices.Contains(r.cached, id) && !slices.Contains(r.body.Outputs, id) {
			return false
		}
	}
	return true
}
