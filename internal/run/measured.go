package run

import (
	"slices"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// telling is the smallest share of a graph's work from which the time of all of it is learned.
const telling = 0.25

// measured learns from a run that ended well.
func (r collecting) measured() {
	s, ok := schedule.DecodeStructure(r.Job().Shape)
	if !ok || r.startedAt.IsZero() || r.endedAt.IsZero() || r.missed.messages {
		return
	}
	graph := r.cachedGraph()
	if graph != nil && r.allCached(graph) {
		return
	}
	p := schedule.Pair{Structure: s.Key, Kind: s.Kind, GPU: r.d.Reports.Gpu(r.conn.Name)}
	done := 1.0
	if graph != nil {
		spent, _, _ := r.d.Durations.Spending.Of(s, p.GPU)
		done = spent.Done(graph, r.cached)
	}
	if done >= telling {
		r.d.Durations.Add(p, schedule.Sample{Work: s.Work * done, Ran: r.endedAt.Sub(r.startedAt), Cold: r.cold})
	}
	if r.endedAt.Sub(r.startedAt) >= worthSplitting {
		r.d.Durations.AddSpent(p, r.timing.byClass(r.body.Prompt))
	}
	if peak := r.peak.Load(); peak > 0 {
		r.d.Durations.AddNeed(p, schedule.Need{Work: s.Work, Bytes: peak})
	}
}

// cachedGraph is the graph of a run whose instance had the results of some nodes already; nil if it had none.
func (r collecting) cachedGraph() *pyjson.Object {
	if len(r.cached) == 0 {
		return nil
	}
	v, err := pyjson.Parse(dividing(r).made())
	graph, ok := v.(*pyjson.Object)
	if err != nil || !ok {
		return nil
	}
	return graph
}

// allCached reports whether the instance already had the results of all nodes except outputs, so
// that the run says nothing about how long the graph takes.
func (r collecting) allCached(graph *pyjson.Object) bool {
	for id := range graph.All() {
		if !slices.Contains(r.cached, id) && !slices.Contains(r.body.Outputs, id) {
			return false
		}
	}
	return true
}
