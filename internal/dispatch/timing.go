package dispatch

import (
	"time"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

const (
	// worthSplitting is the shortest run of which it is noted where its time went.
	worthSplitting = time.Second
	// maxTimed bounds the nodes of a run whose time is taken.
	maxTimed = 1000
)

// timing is how long the nodes of a run took, as its messages tell.
type timing struct {
	node  string
	since time.Time
	took  map[string]time.Duration
}

// enters notes that a node begins, or with "" that the last one has ended.
func (t *timing) enters(node string, now time.Time) {
	if _, known := t.took[t.node]; t.node != "" && (known || len(t.took) < maxTimed) {
		if t.took == nil {
			t.took = map[string]time.Duration{}
		}
		t.took[t.node] += now.Sub(t.since)
	}
	t.node, t.since = node, now
}

// byClass adds up the times of the nodes of each class of a graph.
func (t *timing) byClass(graph []byte) schedule.Spent {
	out := schedule.Spent{}
	pyjson.Members(graph, func(id string, node []byte) {
		took := t.took[id]
		if took <= 0 {
			return
		}
		pyjson.Members(node, func(key string, value []byte) {
			if key == "class_type" {
				out[pyjson.Unquote(value)] += took
			}
		})
	})
	return out
}

// Spent returns where the time of runs like a job's goes, and of how many runs that is known, on
// average and at least: on the type of GPU that has run it, if that is known, or on any.
func (f *Forecasts) Spent(shape, instance string) (mean, least schedule.Spent, runs int) {
	s, ok := schedule.DecodeStructure(shape)
	if !ok {
		return nil, nil, 0
	}
	return f.durations.spending.Of(s, f.reports.Gpu(instance))
}

// Loading returns how much longer a run like a job's takes that has to load its models, and how
// many of the last runs had to; zeros if that is not known.
func (f *Forecasts) Loading(shape, instance string) (extra time.Duration, cold, runs int) {
	s, ok := schedule.DecodeStructure(shape)
	if !ok {
		return 0, 0, 0
	}
	return f.durations.known.Loading(s, f.reports.Gpu(instance))
}
