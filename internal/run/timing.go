package run

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
