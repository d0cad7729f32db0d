package gossip

import (
	"cmp"
	"slices"
	"sync"

	"github.com/hashicorp/memberlist"
)

// roster is our own list of the other members. memberlist hands out pointers to
// nodes that it goes on writing to; in its callbacks, and only there, they can
// be copied without a race.
type roster struct {
	mu    sync.Mutex
	nodes map[string]memberlist.Node
}

func (r *roster) add(n *memberlist.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.nodes == nil {
		r.nodes = map[string]memberlist.Node{}
	}
	r.nodes[n.Name] = *n
}

func (r *roster) remove(n *memberlist.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.nodes, n.Name)
}

// all returns copies, sorted by node name.
func (r *roster) all() []*memberlist.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]*memberlist.Node, 0, len(r.nodes))
	for _, n := range r.nodes {
		list = append(list, &n)
	}
	slices.SortFunc(list, func(a, b *memberlist.Node) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
