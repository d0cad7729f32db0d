package gossip

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/fleet"
)

// message takes what another member has sent.
func (g *Gossip) message(data []byte) {
	switch data[0] {
	case messageSignedReport, messageSignedFarewell:
		from, body, err := unseal(data)
		switch {
		case err != nil:
			g.refuse(from.Name, err)
		case data[0] == messageSignedFarewell:
			g.farewell(from)
		default:
			g.report(from, body)
		}
	case messageReport:
		g.unsignedReport(data[1:])
	case messageFarewell:
		// An older agent's, or a hub's, whose farewell nobody relies on.
		if m, err := decodeMeta(data[1:]); err == nil && m.Key == "" {
			g.farewell(m)
		}
	case messageRefusal:
		g.refused(data[1:])
	}
}

func (g *Gossip) farewell(from meta) {
	g.event(Event{Member: from.member(from.Addr), Left: true, farewell: true})
}

// report takes a report that is proven to be of its sender.
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
		g.refuse(from.Name, err)
		return
	}
	r.Sender = fleet.Sender{Key: from.Key, Addr: addr.Addr().Unmap()}
	g.deliver(r)
}

// unsignedReport takes the report of an agent that is older than signatures.
// Without a gossip key the group is on loopback, where there is nobody to be
// kept out; everywhere else anybody could have sent it.
func (g *Gossip) unsignedReport(body []byte) {
	if g.config.OnReport == nil {
		return
	}
	r, err := fleet.DecodeReport(body)
	if err == nil && g.config.Key != "" {
		err = ErrUnsigned
	}
	if err != nil {
		g.refuse(r.Agent, err)
		return
	}
	g.deliver(r)
}

func (g *Gossip) deliver(r fleet.Report) {
	if _, over := g.ended[process{RoleAgent, r.Agent, r.Boot, r.Sender.Key}]; over {
		return // overtaken by the farewell: it would raise the dead
	}
	g.config.OnReport(r)
}

func (g *Gossip) refuse(agent string, err error) {
	if CheckName(agent) != nil {
		agent = "" // it would end up in logs
	}
	if g.config.OnRefused != nil {
		g.config.OnRefused(agent, err)
	}
}

// refusal is what a hub tells an agent whose reports it does not take.
type refusal struct {
	Boot   int64  `json:"boot"`
	Reason string `json:"reason"`
}

const (
	// maxRefusal bounds the text of a refusal, in bytes.
	maxRefusal = 400
	// refusalEvery is how often an agent logs one: anybody in the group can
	// send them.
	refusalEvery = time.Minute
	// maxTelling bounds the refusals under way.
	maxTelling = 8
)

// Refuse tells an agent why its reports are not taken, so that the operator
// finds it in the log of the machine that is concerned. It does not wait, and
// says nothing to a process that is not there.
func (g *Gossip) Refuse(agent string, boot int64, reason string) {
	body, err := json.Marshal(refusal{Boot: boot, Reason: reason[:min(len(reason), maxRefusal)]})
	if err != nil {
		return
	}
	message := append([]byte{messageRefusal}, body...)
	for _, n := range g.roster.all() {
		m, ok := memberOf(n)
		if !ok || m.Role != RoleAgent || m.Name != agent || m.Boot != boot {
			continue
		}
		g.tell.do(func() {
			if err := g.list.SendReliable(n, message); err != nil {
				g.log.Debug("a refusal was not delivered", "to", n.Address(), "error", err)
			}
		})
	}
}

// refused takes what a hub has said.
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

// teller sends a few messages at a time, and forgets those beyond.
type teller struct {
	mu   sync.Mutex
	busy int
	over bool
	work sync.WaitGroup
}

func (t *teller) do(send func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over || t.busy >= maxTelling {
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

// wait ends the sending.
func (t *teller) wait() {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	t.work.Wait()
}
