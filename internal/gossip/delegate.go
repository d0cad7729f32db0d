package gossip

import (
	"bytes"
	"fmt"

	"github.com/hashicorp/memberlist"
)

// The first byte of each user message and of the state that members exchange.
const (
	messageReport         byte = 1 // a report follows, unsigned
	messageFarewell       byte = 2 // the sender's description follows, unsigned
	messageSignedReport   byte = 3 // an envelope with a report
	messageSignedFarewell byte = 4 // an envelope with nothing
	messageRefusal        byte = 5 // what a hub tells an agent, see refusal
)

// delegate is what memberlist calls. Nothing in it waits.
type delegate struct {
	self   string // node name
	meta   []byte
	roster *roster
	inbox  *inbox
	state  func() []byte // nil for members that report nothing
}

// NodeMeta returns this member's description.
func (d *delegate) NodeMeta(int) []byte { return d.meta }

// NotifyMsg takes a message of another member; memberlist reuses the buffer.
func (d *delegate) NotifyMsg(message []byte) {
	if len(message) < 2 {
		return
	}
	// Signatures are checked by whoever takes it from there: that costs time.
	d.inbox.message(bytes.Clone(message))
}

// GetBroadcasts has nothing to add to the gossip.
func (d *delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState is this member's part of a full exchange.
func (d *delegate) LocalState(bool) []byte {
	if d.state == nil {
		return nil
	}
	return d.state()
}

// MergeRemoteState takes the other's part.
func (d *delegate) MergeRemoteState(state []byte, _ bool) { d.NotifyMsg(state) }

// NotifyJoin takes a member that has come.
func (d *delegate) NotifyJoin(n *memberlist.Node) { d.notify(n, false) }

// NotifyLeave takes a member that has gone.
func (d *delegate) NotifyLeave(n *memberlist.Node) { d.notify(n, true) }

// NotifyUpdate takes a member that has changed; descriptions of ours never do.
func (d *delegate) NotifyUpdate(n *memberlist.Node) {
	if n.Name != d.self {
		d.roster.add(n)
	}
}

// NotifyAlive keeps programs out that share the key but are none of ours, and
// descriptions of an agent that it has not given of itself.
func (d *delegate) NotifyAlive(n *memberlist.Node) error {
	if n.Name == d.self {
		return nil
	}
	m, err := decodeMeta(n.Meta)
	if err != nil || m.Key == "" {
		return err // hubs and older agents sign nothing; nobody relies on theirs
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
		d.roster.remove(n)
	} else {
		d.roster.add(n)
	}
	d.inbox.event(Event{Member: m, Left: left})
}
