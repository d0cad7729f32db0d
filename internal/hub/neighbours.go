package hub

import (
	"slices"
	"sync/atomic"

	"github.com/comfyhub/comfyhub/internal/gossip"
)

// neighbours are the other hubs as gossip knows them; see [stream.Neighbours]. There are none until
// the membership is stored.
type neighbours struct{ known atomic.Pointer[membership] }

func (n *neighbours) group() *gossip.Gossip {
	if m := n.known.Load(); m != nil {
		return m.gossip.Load()
	}
	return nil
}

// Reached tells the other hubs whether this one reaches the queue.
func (n *neighbours) Reached(ok bool) {
	if g := n.group(); g != nil {
		g.SetCutOff(!ok)
	}
}

// Reach reports whether another hub says that it reaches the queue.
func (n *neighbours) Reach() bool {
	g := n.group()
	return g != nil && slices.ContainsFunc(g.Members(), func(m gossip.Member) bool { return m.Role == gossip.RoleHub && !m.CutOff })
}
