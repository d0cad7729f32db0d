package gossip

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/fleet"
)

// message handles a message from another member.
func (g *Gossip) message(data []byte) {
	switch data[0] {
	case messageSignedReport, messageSignedLeave:
		from, body, err := unseal(data, &g.proven)
		switch {
		case err != nil:
			g.refuse(from.Name, 0, err)
		case data[0] == messageSignedLeave:
			g.leaveAnnounced(from)
		default:
			g.report(from, body)
		}
	case messageReport:
		g.unsignedReport(data[1:])
	case messageLeave:
		// From an older agent, or from a hub, on whose leave messages nothing
		// relies.
		if m, err := decodeMeta(data[1:]); err == nil && m.Key == "" {
			g.leaveAnnounced(m)
		}
	case messageRefusal:
		g.refused(data[1:])
	}
}

func (g *Gossip) leaveAnnounced(from meta) {
	g.event(Event{Member: from.member(from.Addr), Left: true, Announced: true})
}

// report handles a report that is proven to be from its sender.
func (g *Gossip) report(from meta, body []byte) {
	if g.config.OnReport == nil {
		return
	}
	r, err := fleet.DecodeReport(body)
	if err == nil && (r.Agent != from.Name || r.Boot != from.Boot || from.Role != RoleAgent) {
		err = fmt.Errorf("%w: a report of %s", ErrForged, r.Agent)
	}
	addr, wrong := netip.ParseAddrPort(from.Addr)
	if err == nil && wrong != nil {
		err = fmt.Errorf("%w: the address of the sender", fleet.ErrReport)
	}
	if err != nil {
		g.refuse(from.Name, from.Boot, err)
		return
	}
	r.Sender = fleet.Sender{Key: from.Key, Addr: addr.Addr().Unmap(), Unmet: !g.gate.proven(addr.Addr())}
	if r.Sender.Unmet && g.early(processOf(from.member(from.Addr))) {
		return // agents repeat their reports
	}
	g.deliver(r)
}

// early reports whether a member from whose address nothing has come is heard of for the
// first time.
func (g *Gossip) early(p process) bool {
	if since, known := g.unmet[p]; known {
		return time.Since(since) < unmetFor
	}
	note(g.unmet, p, true)
	return true
}

// unsignedReport handles the report of an agent that is too old to sign. Without a
// gossip key the group is on loopback, where nobody has to be kept out; anywhere
// else anybody could have sent it.
func (g *Gossip) unsignedReport(body []byte) {
	if g.config.OnReport == nil {
		return
	}
	r, err := fleet.DecodeReport(body)
	if err == nil && g.config.Key != "" {
		err = ErrUnsigned
	}
	if err != nil {
		g.refuse(r.Agent, 0, err)
		return
	}
	g.deliver(r)
}

func (g *Gossip) deliver(r fleet.Report) {
	if _, over := g.ended[process{RoleAgent, r.Agent, r.Boot, r.Sender.Key}]; over {
		return // the leave message overtook it: it would bring the agent back
	}
	g.config.OnReport(r)
}

func (g *Gossip) refuse(agent string, boot int64, err error) {
	if CheckName(agent) != nil {
		agent = "" // it would end up in logs
	}
	if g.config.OnRefused != nil {
		g.config.OnRefused(agent, boot, err)
	}
}

// refusal is what a hub tells an agent whose reports it does not accept.
type refusal struct {
	Boot   int64  `json:"boot"`
	Reason string `json:"reason"`
}

const (
	// maxRefusal bounds the text of a refusal, in bytes.
	maxRefusal = 400
	// refusalEvery is how often an agent logs a refusal: anybody in the group can
	// send them.
	refusalEvery = time.Minute
	// maxRefusalsInFlight bounds the refusals that are being sent.
	maxRefusalsInFlight = 8
)

// Refuse tells an agent why its reports are not accepted, so that the operator
// finds the reason in the log of the machine concerned. It does not block, and does
// nothing if the process is gone.
func (g *Gossip) Refuse(agent string, boot int64, reason string) {
	body, err := json.Marshal(refusal{Boot: boot, Reason: reason[:min(len(reason), maxRefusal)]})
	if err != nil {
		return
	}
	message := append([]byte{messageRefusal}, body...)
	for _, n := range g.members.all() {
		m, ok := memberOf(n)
		if !ok || m.Role != RoleAgent || m.Name != agent || m.Boot != boot {
			continue
		}
		g.refusals.do(func() {
			if err := g.list.SendReliable(n, message); err != nil {
				g.log.Debug("a refusal was not delivered", "to", n.Address(), "error", err)
			}
		})
	}
}

// refused handles a hub's refusal.
func (g *Gossip) refused(body []byte) {
	var r refusal
	if g.config.Role != RoleAgent || json.Unmarshal(body, &r) != nil || r.Boot != g.config.Boot || len(r.Reason) > maxRefusal {
		return
	}
	if now := time.Now(); now.Sub(g.refusedAt) >= refusalEvery {
		g.refusedAt = now
		g.log.Error("a hub refuses this agent", "name", g.config.Name, "reason", r.Reason, "key", Fingerprint(g.config.Identity.Key()))
	}
}

// limitedSender sends a few messages at a time and drops any beyond that.
type limitedSender struct {
	mu   sync.Mutex
	busy int
	over bool
	work sync.WaitGroup
}

func (t *limitedSender) do(send func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over || t.busy >= maxRefusalsInFlight {
		return
	}
	t.busy++
	t.work.Go(func() {
		send()
		t.mu.Lock()
		t.busy--
		t.mu.Unlock()
	})
}

// wait waits for the messages being sent and refuses new ones.
func (t *limitedSender) wait() {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	t.work.Wait()
}
