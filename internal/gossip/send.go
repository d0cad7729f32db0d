package gossip

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// maxDatagram bounds what is sent by UDP. Larger reports, from machines with very
// many instances, go by TCP only.
const maxDatagram = 32 << 10

// Push sends the current report to every hub. edge means that an instance has
// become idle or busy, or has come or gone: the report must arrive, so it goes by
// TCP as well. Push does not block.
func (g *Gossip) Push(edge bool) {
	if g.config.Report == nil {
		return
	}
	hubs := g.hubNodes()
	if len(hubs) == 0 {
		return
	}
	for _, n := range hubs {
		message := g.reportFor(protocolOf(n))
		if message == nil {
			return
		}
		if len(message) <= maxDatagram {
			if err := g.list.SendBestEffort(n, message); err != nil {
				g.log.Debug("a report was not sent", "to", n.Address(), "error", err)
			}
		}
		if edge || len(message) > maxDatagram {
			g.hubs.wake(n)
		}
	}
}

// reportFor encodes the current report for a member with the given protocol
// version; nil if there is nothing to say yet.
func (g *Gossip) reportFor(protocol int) []byte {
	report := g.config.Report()
	if report.Agent == "" {
		return nil
	}
	body := report.Encode()
	if protocol < protocolSigned {
		return append([]byte{messageReport}, body...)
	}
	return g.config.Identity.seal(messageSignedReport, g.meta.encode(), body)
}

// protocolOf returns a node's protocol version, 0 for one that does not state it.
func protocolOf(n *memberlist.Node) int {
	m, err := decodeMeta(n.Meta)
	if err != nil {
		return 0
	}
	return m.Protocol
}

func (g *Gossip) hubNodes() []*memberlist.Node {
	var hubs []*memberlist.Node
	for _, n := range g.members.all() {
		if m, ok := memberOf(n); ok && m.Role == RoleHub {
			hubs = append(hubs, n)
		}
	}
	return hubs
}

func (g *Gossip) repeat(ctx context.Context) {
	tick := time.NewTicker(repeatEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			g.Push(false)
		}
	}
}

func (g *Gossip) sendReliable(n *memberlist.Node) {
	message := g.reportFor(protocolOf(n))
	if message == nil {
		return
	}
	if err := g.list.SendReliable(n, message); err != nil {
		g.log.Debug("a report was not delivered", "to", n.Address(), "error", err)
	}
}

// announceLeave tells every hub that this process is leaving. memberlist's own
// leave does not: to the hub it looks like a death, after which a late report would
// count as a sign of life.
func (g *Gossip) announceLeave() {
	var work sync.WaitGroup
	for _, n := range g.hubNodes() {
		message := append([]byte{messageLeave}, g.meta.encode()...)
		if !g.config.Identity.none() && protocolOf(n) >= protocolSigned {
			message = g.config.Identity.seal(messageSignedLeave, g.meta.encode(), nil)
		}
		work.Go(func() {
			if err := g.list.SendReliable(n, message); err != nil {
				g.log.Debug("a leave message was not delivered", "to", n.Address(), "error", err)
			}
		})
	}
	work.Wait()
}

// sendPause is the least time between two reports by TCP to one hub. A machine whose
// prompts take milliseconds would otherwise open two connections for each of them,
// and its datagrams have most likely arrived.
const sendPause = 100 * time.Millisecond

// senders deliver reports by TCP, with one goroutine per hub while there is
// something to send: a hub that hangs must not delay the others. Each makes its
// report when it sends it, so that only the newest is ever pending.
type senders struct {
	send func(*memberlist.Node)

	mu      sync.Mutex
	over    bool
	closed  chan struct{} // once over
	running map[string]*sender
	work    sync.WaitGroup
}

type sender struct{ again bool }

func newSenders(send func(*memberlist.Node)) *senders {
	return &senders{send: send, closed: make(chan struct{}), running: map[string]*sender{}}
}

// wake makes the sender of a hub deliver once more, sendPause after the last time.
func (s *senders) wake(n *memberlist.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	if busy := s.running[n.Name]; busy != nil {
		busy.again = true
		return
	}
	self := &sender{}
	s.running[n.Name] = self
	s.work.Go(func() {
		for more := true; more; more = s.more(n.Name, self) {
			s.send(n)
			select {
			case <-time.After(sendPause):
			case <-s.closed:
			}
		}
	})
}

// more reports whether a sender has to deliver once more. If not, it has ended.
func (s *senders) more(name string, self *sender) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !self.again || s.over {
		delete(s.running, name)
		return false
	}
	self.again = false
	return true
}

// close waits until nothing is being sent any more.
func (s *senders) close() {
	s.mu.Lock()
	if !s.over {
		s.over = true
		close(s.closed)
	}
	s.mu.Unlock()
	s.work.Wait()
}
