package request

import (
	"math"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// progress is how far a run is, according to its messages.
type progress struct {
	position int       // in the queue from 0; -1 if it is not waiting or unknown
	end      time.Time // when it is expected to have ended; zero if unknown
	stuck    string    // why it waits, if that is not just a matter of time
	moved    time.Time // when it last moved in the queue
	whyAt    time.Time // when it was last asked why it waits
	started  bool
	nodes    int             // of the workflow
	known    pace            // how long its nodes usually take
	done     map[string]bool // nodes
	cached   map[string]bool // nodes that take no time in this run
	took     pace            // nodes that are done
	again    map[string]bool // nodes that run as several others, as in a loop
	whole    bool            // it was seen from its beginning
	node     string
	since    time.Time // of that node
	value    float64
	max      float64
	first    float64 // the first value that the node gave, and when
	firstAt  time.Time
	valueAt  time.Time // when it gave the last one
	most     int       // percent that have been shown
	preview  []byte
}

func newProgress(nodes int) *progress {
	return &progress{position: -1, nodes: nodes, done: map[string]bool{}, cached: map[string]bool{}, took: pace{}, again: map[string]bool{}}
}

// restart forgets a run that was lost.
func (p *progress) restart() {
	known := p.known
	*p = *newProgress(p.nodes)
	p.known = known
}

// expect notes that the request ends after a time; 0 means that this is unknown.
func (p *progress) expect(left time.Duration, now time.Time) {
	p.end = time.Time{}
	if left > 0 {
		p.end = now.Add(left)
	}
}

// eta is the expected time until the end, 0 if it is unknown or over.
func (p *progress) eta() time.Duration {
	if p.end.IsZero() {
		return 0
	}
	return max(0, time.Until(p.end))
}

// wait notes a place in the queue.
func (p *progress) wait(position int, asked time.Time) {
	switch {
	case p.moved.IsZero():
		p.moved = asked
	case p.position != position:
		p.moved, p.whyAt, p.stuck = time.Now(), time.Time{}, ""
	}
	p.position = position
}

// A time below shortLeft is only said once nearEnd percent are done: before, nodes follow whose
// time nobody knows.
const (
	shortLeft = 5 * time.Second
	nearEnd   = 80
)

// left is how long the run still takes, 0 if that is unknown. The hub goes by earlier runs; if
// this one is slower, the pace of its steps counts.
func (p *progress) left() time.Duration {
	left := p.eta()
	if p.max > p.value && p.value > p.first {
		pace := p.valueAt.Sub(p.firstAt).Seconds() / (p.value - p.first)
		own := time.Duration(pace*(p.max-p.value)*float64(time.Second)) - time.Since(p.valueAt)
		left = max(left, own)
	}
	if left < shortLeft && p.most < nearEnd {
		return 0
	}
	return left
}

// note handles a message and reports whether it changes what is shown.
func (p *progress) note(h hubapi.Happening) bool {
	now := time.Now()
	switch h.Type {
	case comfyui.TypeExecutionStart:
		// Also when a lost run starts over.
		end := p.end
		p.restart()
		p.started, p.whole, p.end = true, true, end
	case comfyui.TypeExecutionCached:
		for _, node := range h.Strings("nodes") {
			p.done[node], p.cached[node] = true, true
		}
	case comfyui.TypeExecuting:
		p.leave(now)
		p.node, p.value, p.max, p.since, p.firstAt = h.Node, 0, 0, now, time.Time{}
		if h.DisplayNode != "" {
			p.node = h.DisplayNode
			p.again[p.node] = h.Node != h.DisplayNode
		}
	case comfyui.TypeProgress:
		value := h.Float("value")
		if p.firstAt.IsZero() || value < p.value {
			p.first, p.firstAt = value, now
		}
		p.value, p.max, p.valueAt = value, h.Float("max"), now
	default:
		return false
	}
	p.position = -1
	return true
}

// leave ends the running node.
func (p *progress) leave(now time.Time) {
	if p.node != "" {
		p.done[p.node] = true
		p.took[p.node] += now.Sub(p.since).Seconds()
	}
}

// times returns how long each node took, in seconds, and whether they add up to the run's
// total: if the connection broke, messages came late or not at all.
func (p *progress) times(run time.Duration) (pace, bool) {
	p.leave(time.Now())
	p.node = ""
	sum := 0.0
	for _, seconds := range p.took {
		sum += seconds
	}
	return p.took, p.whole && run > 0 && sum > 0.8*run.Seconds() && sum < 1.5*run.Seconds()+1
}

// percent returns how much is done, from 0 to 99. A node counts for its usual time, or the
// mean of the others if that is unknown, and the running one for its share of it. It never
// goes back.
func (p *progress) percent() int {
	if p.nodes == 0 {
		return 0
	}
	usual := p.known.mean()
	weight := func(node string) float64 {
		if seconds, ok := p.known[node]; ok {
			return seconds
		}
		return usual
	}
	// Nodes without a name here have not started.
	all, past, named := 0.0, 0.0, 0
	count := func(node string) {
		named++
		if !p.cached[node] {
			all += weight(node)
		}
	}
	for node := range p.known {
		count(node)
	}
	for node := range p.done {
		if _, ok := p.known[node]; !ok {
			count(node)
		}
		switch {
		case p.cached[node]:
		case p.again[node] && p.known[node] > 0: // a part of it
			past += weight(node) * min(p.took[node]/weight(node), almost)
		default:
			past += weight(node)
		}
	}
	if _, ok := p.known[p.node]; !ok && p.node != "" && !p.done[p.node] {
		count(p.node)
	}
	all += float64(max(0, p.nodes-named)) * usual
	if p.node != "" && !p.done[p.node] {
		past += weight(p.node) * p.part(weight(p.node))
	}
	if all > 0 {
		p.most = max(p.most, int(math.Round(min(past/all, 0.99)*100)))
	}
	return p.most
}

// almost is how much of a node counts as done at most by its time alone.
const almost = 0.9

// part is how much of the running node is done, from 0 to 1. One that does not say is
// measured by the seconds that it usually takes.
func (p *progress) part(usual float64) float64 {
	if p.max > 0 {
		return min(p.value/p.max, 1)
	}
	if len(p.known) == 0 || usual <= 0 || p.since.IsZero() {
		return 0
	}
	return min(time.Since(p.since).Seconds()/usual, almost)
}

// bar draws a part of a hundred.
func bar(percent int) string {
	const width = 12
	filled := min(max(percent, 0), 100) * width / 100
	return strings.Repeat("▰", filled) + strings.Repeat("▱", width-filled)
}
