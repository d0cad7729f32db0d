package gossip

import (
	"cmp"
	"slices"
	"sync"

	"github.com/hashicorp/memberlist"
)

// memberSet is our own list of the other members. memberlist passes pointers to
// nodes that it continues to write to; only within its callbacks can they be copied
// without a race.
type memberSet struct {
	mu    sync.Mutex
	nodes map[string]memberlist.Node
}

func (s *memberSet) add(n *memberlist.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes == nil {
		s.nodes = map[string]memberlist.Node{}
	}
	s.nodes[n.Name] = *n
}

func (s *memberSet) remove(n *memberlist.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, n.Name)
}

// all returns copies, sorted by node name.
func (s *memberSet) all() []*memberlist.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*memberlist.Node, 0, len(s.nodes))
	for _, n := range s.nodes {
		list = append(list, &n)
	}
	slices.SortFunc(list, func(a, b *memberlist.Node) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
