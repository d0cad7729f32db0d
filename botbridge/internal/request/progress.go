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
	position int // in the queue from 0; -1 if it is not waiting or unknown
	eta      time.Duration
	stuck    string // why it waits, if that is not just a matter of time
	started  bool
	nodes    int             // of the workflow
	done     map[string]bool // nodes
	node     string
	value    float64
	max      float64
	preview  []byte
}

func newProgress(nodes int) *progress {
	return &progress{position: -1, nodes: nodes, done: map[string]bool{}}
}

// note handles a message and reports whether there is something new to show.
func (p *progress) note(h hubapi.Happening) bool {
	switch h.Type {
	case comfyui.TypeExecutionStart:
		// Also for the second run after one that was lost: it starts again.
		*p = *newProgress(p.nodes)
		p.started = true
	case comfyui.TypeExecutionCached:
		for _, node := range h.Strings("nodes") {
			p.done[node] = true
		}
	case comfyui.TypeExecuting:
		if p.node != "" {
			p.done[p.node] = true
		}
		p.node, p.value, p.max = h.Node, 0, 0
		if h.DisplayNode != "" {
			p.node = h.DisplayNode
		}
	case comfyui.TypeProgress:
		p.value, p.max = h.Float("value"), h.Float("max")
	default:
		return false
	}
	p.position = -1
	return true
}

// percent returns how much is done, from 0 to 99: all nodes count the same, the
// running one in proportion to its progress.
func (p *progress) percent() int {
	if p.nodes == 0 {
		return 0
	}
	part := float64(len(p.done))
	if p.max > 0 && !p.done[p.node] {
		part += min(p.value/p.max, 1)
	}
	return int(math.Round(min(part/float64(p.nodes), 0.99) * 100))
}

// bar draws a part of a hundred.
func bar(percent int) string {
	const width = 12
	filled := min(max(percent, 0), 100) * width / 100
	return strings.Repeat("▰", filled) + strings.Repeat("▱", width-filled)
}
