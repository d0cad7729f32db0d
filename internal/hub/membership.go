package hub

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/gossip"
)

// membership is the hub's place in the gossip: agents come and go there, and
// their reports come in.
type membership struct {
	hub    *Hub
	gossip *gossip.Gossip

	mu sync.Mutex
	// abilities are the hashes of object_info as last reported.
	abilities map[string]string
	// told are the faults of reports that the log has already seen.
	told map[string]bool
}

func (h *Hub) openGossip(ctx context.Context, name string) (*membership, error) {
	m := &membership{hub: h, abilities: map[string]string{}, told: map[string]bool{}}
	g, err := gossip.Join(ctx, gossip.Config{
		Role: gossip.RoleHub, Name: "hub-" + name, Version: Version,
		Bind: h.id.GossipBind, Advertise: h.id.GossipAdvertise, Key: h.id.GossipKey,
		Join: h.settings().Join, Logger: h.log(),
		OnMember: m.member, OnReport: m.report,
	})
	if err != nil {
		return nil, err
	}
	m.gossip = g
	return m, nil
}

// member notes the coming and going of agents.
func (m *membership) member(e gossip.Event) {
	if e.Member.Role == gossip.RoleAgent && e.Left {
		m.hub.fleet.AgentLeft(e.Member.Name, e.Member.Boot)
	}
}

// report takes in what an agent says of its instances.
func (m *membership) report(r fleet.Report) {
	err := m.hub.fleet.Apply(r)
	if err != nil && !errors.Is(err, fleet.ErrStale) {
		m.complain(err)
	}
	m.mu.Lock()
	var changed []string
	for _, i := range r.Instances {
		if before := m.abilities[i.Name]; i.Up && i.ObjectInfo != "" && before != i.ObjectInfo {
			m.abilities[i.Name] = i.ObjectInfo
			if before != "" {
				changed = append(changed, i.Name)
			}
		}
	}
	m.mu.Unlock()
	for _, name := range changed {
		m.hub.dispatch.Relearn(name)
	}
}

// complain logs a fault once: reports come every few seconds.
func (m *membership) complain(err error) {
	m.mu.Lock()
	known := m.told[err.Error()]
	m.told[err.Error()] = true
	m.mu.Unlock()
	if !known {
		m.hub.log().Error("an agent's report is refused", "error", err)
	}
}

// counts are the members of the gossip, this hub included.
func (m *membership) counts() (hubs, agents int) {
	hubs = 1
	for _, member := range m.gossip.Members() {
		if member.Role == gossip.RoleHub {
			hubs++
		} else {
			agents++
		}
	}
	return hubs, agents
}

func (m *membership) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return m.gossip.Leave(ctx)
}

// connect makes the client of an instance: an agent proves by the gossip key
// that it is one, and so does the hub.
func (h *Hub) connect(i fleet.Instance) (*comfyui.Client, error) {
	o := comfyui.Options{UserAgent: h.userAgent(), ViaAgent: !i.Direct}
	if !i.Direct && h.id.GossipKey != "" {
		_, client, err := gossip.TLS(h.id.GossipKey)
		if err != nil {
			return nil, fmt.Errorf("hub: %w", err)
		}
		o.TLS = client
	}
	return comfyui.NewClient(i.URL, o)
}
