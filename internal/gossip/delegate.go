package gossip

import (
	"bytes"
	"fmt"
	"net/netip"
	"sync/atomic"

	"github.com/hashicorp/memberlist"
)

// The first byte of each user message, and of the state that members exchange.
const (
	messageReport       byte = 1 // followed by a report, unsigned
	messageLeave        byte = 2 // followed by the sender's description, unsigned
	messageSignedReport byte = 3 // an envelope with a report
	messageSignedLeave  byte = 4 // an envelope without content
	messageRefusal      byte = 5 // what a hub tells an agent, see refusal
)

// delegate receives memberlist's callbacks. None of them blocks.
type delegate struct {
	self    string // node name
	meta    atomic.Pointer[[]byte]
	members *memberSet
	gate    *gate // nil lets all through
	inbox   *inbox
	state   func() []byte // nil for members that report nothing
}

// NodeMeta returns this member's description.
func (d *delegate) NodeMeta(int) []byte { return *d.meta.Load() }

func (d *delegate) describe(m meta) {
	text := m.encode()
	d.meta.Store(&text)
}

// NotifyMsg receives a message from another member; memberlist reuses the buffer.
func (d *delegate) NotifyMsg(message []byte) {
	if len(message) < 2 {
		return
	}
	// Signatures are checked by the goroutine that handles the message: that takes
	// time.
	d.inbox.message(bytes.Clone(message))
}

// GetBroadcasts has nothing to add to the gossip.
func (d *delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState returns this member's part of a full state exchange.
func (d *delegate) LocalState(bool) []byte {
	if d.state == nil {
		return nil
	}
	return d.state()
}

// MergeRemoteState receives the other member's part.
func (d *delegate) MergeRemoteState(state []byte, _ bool) { d.NotifyMsg(state) }

// NotifyJoin records that a member has joined.
func (d *delegate) NotifyJoin(n *memberlist.Node) { d.notify(n, false) }

// NotifyLeave records that a member has left.
func (d *delegate) NotifyLeave(n *memberlist.Node) { d.notify(n, true) }

// NotifyUpdate records that a member has changed.
func (d *delegate) NotifyUpdate(n *memberlist.Node) {
	if n.Name != d.self {
		d.members.add(n)
	}
}

// NotifyAlive keeps out programs that share the key but are not members of
// ComfyHub, those at addresses where no member can be, and descriptions that an agent has not given of itself.
func (d *delegate) NotifyAlive(n *memberlist.Node) error {
	if n.Name == d.self {
		return nil
	}
	if a, ok := netip.AddrFromSlice(n.Addr); d.gate != nil && (!ok || !d.gate.packets(a)) {
		return fmt.Errorf("%w: %s", errUnmet, n.Address())
	}
	m, err := decodeMeta(n.Meta)
	if err != nil || m.Key == "" {
		return err // hubs and older agents sign nothing; nothing relies on their descriptions
	}
	if n.Name != m.node() || n.Address() != m.Addr {
		return fmt.Errorf("%w: it describes %s at %s", ErrForged, m.node(), m.Addr)
	}
	return m.verify()
}

func (d *delegate) notify(n *memberlist.Node, left bool) {
	m, ok := memberOf(n)
	if !ok || n.Name == d.self {
		return
	}
	if left {
		d.members.remove(n)
	} else {
		d.members.add(n)
	}
	d.inbox.event(Event{Member: m, Left: left})
}
