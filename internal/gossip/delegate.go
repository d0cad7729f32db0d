package gossip

import (
	"bytes"

	"github.com/hashicorp/memberlist"
)

// The first byte of each user message and of the state that members exchange.
const (
	messageReport   byte = 1 // a report follows
	messageFarewell byte = 2 // the sender's description follows
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
	switch message[0] {
	case messageReport:
		d.inbox.report(bytes.Clone(message[1:]))
	case messageFarewell:
		if m, err := decodeMeta(message[1:]); err == nil {
			d.inbox.event(Event{Member: Member{Role: m.Role, Name: m.Name, Boot: m.Boot, Version: m.Version}, Left: true, farewell: true})
		}
	}
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

// NotifyAlive keeps programs out that share the key but are none of ours.
func (d *delegate) NotifyAlive(n *memberlist.Node) error {
	_, err := decodeMeta(n.Meta)
	return err
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
