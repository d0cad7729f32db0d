package members

import (
	"slices"

	"github.com/comfyhub/comfyhub/internal/gossip"
)

// Reached implements [stream.Neighbours].
func (m *Members) Reached(ok bool) {
	if g := m.gossip.Load(); g != nil {
		g.SetCutOff(!ok)
	}
}

// Reach implements [stream.Neighbours].
func (m *Members) Reach() bool {
	return slices.ContainsFunc(m.All(), func(g gossip.Member) bool { return g.Role == gossip.RoleHub && !g.CutOff })
}
