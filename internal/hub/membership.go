package hub

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/gossip"
	"github.com/comfyhub/comfyhub/internal/pins"
)

// membership is the hub's place in the gossip, where agents come and go and their reports arrive.
type membership struct {
	hub *Hub
	// gossip is nil while the hub is still joining.
	gossip    atomic.Pointer[gossip.Gossip]
	admission *admission

	mu sync.Mutex
	// abilities are those of the instances as last reported.
	abilities map[string]ability
	// told is when each fault of reports was last logged.
	told map[string]time.Time

	hubs otherHubs
}

// ability is the hash of an instance's object_info, and since when it counts.
type ability struct {
	hash string
	at   time.Time
}

const (
	// relearnEvery is how often an instance is asked what it can run, however often its agent says
	// that this has changed: the answer takes megabytes.
	relearnEvery = 15 * time.Second
	// complainEvery and maxComplaints bound what is logged about refused reports: whoever may join
	// can make them differ.
	complainEvery = time.Hour
	maxComplaints = 500
	// maxAbilities bounds the instances whose abilities are kept.
	maxAbilities = 20_000
)

func (h *Hub) openGossip(ctx context.Context, name string) (*membership, error) {
	m := &membership{hub: h, abilities: map[string]ability{}, told: map[string]time.Time{}, hubs: otherHubs{dial: h.id.Dial()}}
	var pinned owners
	if h.pins != nil {
		pinned = h.pins
	}
	m.admission = newAdmission(pinned, m.take, m.refuse)
	if h.id.GossipBind == config.NoGossip {
		return m, nil
	}
	g, err := gossip.Join(ctx, gossip.Config{
		Role: gossip.RoleHub, Name: hubName(name), Version: config.Version,
		Bind: h.id.GossipBind, Advertise: h.id.GossipAdvertise, Key: h.id.GossipKey, Transport: h.id.Gossip(),
		Join: h.Settings().Join, Logger: h.log(),
		Expects:  func(a netip.Addr) bool { return h.policy.Load().Expects(a) },
		OnMember: m.member, OnReport: m.admission.admit,
		OnRefused: func(agent string, err error) { m.refuse(fleet.Report{Agent: agent}, err) },
	})
	if err != nil {
		m.admission.close()
		return nil, err
	}
	m.gossip.Store(g)
	return m, nil
}

// member notes that agents and hubs come and go.
func (m *membership) member(e gossip.Event) {
	if e.Member.Role == gossip.RoleHub {
		m.hubs.note(e)
	}
	switch {
	case e.Member.Role != gossip.RoleAgent || !e.Left:
	case e.Announced:
		m.hub.Fleet.AgentStopped(e.Member.Name, e.Member.Boot, e.Member.Key)
	default:
		m.hub.Fleet.AgentLeft(e.Member.Name, e.Member.Boot, e.Member.Key)
	}
}

// take takes in what an agent says about its instances. That it comes from this agent has been
// proven.
func (m *membership) take(r fleet.Report) {
	r, faults := m.hub.policy.Load().Restrict(r)
	err := m.hub.Fleet.Apply(r)
	if errors.Is(err, fleet.ErrStale) {
		return
	}
	if err != nil {
		m.refuse(r, err)
	} else {
		m.hub.Pages.Seen(r)
	}
	for name, fault := range faults {
		m.complain("an instance is left out", name, fault)
		if g := m.gossip.Load(); g != nil {
			g.Refuse(r.Agent, r.Boot, "instance "+name+": "+fault)
		}
	}
	for _, name := range m.learn(r) {
		m.hub.Dispatch.Discovery.Relearn(name)
	}
}

// learn notes what instances can run, and returns those that have changed.
func (m *membership) learn(r fleet.Report) (changed []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.abilities) > maxAbilities {
		clear(m.abilities) // forgetting is harmless: links ask when they open
	}
	now := time.Now()
	for _, i := range r.Instances {
		if !i.Up || i.ObjectInfo == "" {
			continue
		}
		if known, ok := m.hub.Fleet.Instance(i.Name); !ok || known.Agent != r.Agent {
			continue
		}
		before := m.abilities[i.Name]
		if before.hash == i.ObjectInfo || before.hash != "" && now.Sub(before.at) < relearnEvery {
			continue // if it is too early, the next report will say so again
		}
		m.abilities[i.Name] = ability{i.ObjectInfo, now}
		if before.hash != "" {
			changed = append(changed, i.Name)
		}
	}
	return changed
}

// refuse tells everybody concerned that a report was not accepted: the operator, those who look at
// the fleet, and the agent itself.
func (m *membership) refuse(r fleet.Report, err error) {
	kind := refusalKind(err)
	m.hub.Metrics.Refused(kind)
	m.complain("an agent's report is refused", r.Agent, err.Error())
	if r.Agent == "" || kind == "forged" {
		return // the agent it names has not sent it
	}
	m.hub.Fleet.Refuse(r.Agent, err.Error())
	if g := m.gossip.Load(); g != nil && r.Boot != 0 {
		g.Refuse(r.Agent, r.Boot, err.Error())
	}
}

// refusalKind returns the reason of a refusal as the metric counts it.
func refusalKind(err error) string {
	for _, k := range []struct {
		err  error
		kind string
	}{
		{gossip.ErrUnsigned, "unsigned"},
		{gossip.ErrForged, "forged"},
		{fleet.ErrReport, "unreadable"},
		{errPinned, "pinned"},
		{fleet.ErrNameTaken, "name"},
		{fleet.ErrMoved, "moved"},
		{fleet.ErrTooMany, "full"},
		{pins.ErrFull, "full"},
	} {
		if errors.Is(err, k.err) {
			return k.kind
		}
	}
	return "unchecked"
}

// complain logs a fault at most once an hour: reports come every few seconds.
func (m *membership) complain(what, name, reason string) {
	m.mu.Lock()
	now := time.Now()
	for fault, at := range m.told {
		if now.Sub(at) > complainEvery {
			delete(m.told, fault)
		}
	}
	fault := name + " " + reason
	_, known := m.told[fault]
	quiet := known || len(m.told) >= maxComplaints
	if !quiet {
		m.told[fault] = now
	}
	m.mu.Unlock()
	if !quiet {
		m.hub.log().Error(what, "name", name, "error", reason)
	}
}

// members returns those of the gossip, none while the hub is joining.
func (m *membership) members() []gossip.Member {
	if g := m.gossip.Load(); g != nil {
		return g.Members()
	}
	return nil
}

// counts returns the numbers of members in the gossip, including this hub.
func (m *membership) counts() (hubs, agents int) {
	hubs = 1
	for _, member := range m.members() {
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
	var err error
	if g := m.gossip.Load(); g != nil {
		err = g.Leave(ctx)
	}
	m.admission.close()
	return err
}

// connect makes the client of an instance. An agent proves with its own key that it is the one
// whose report named the address, and the hub proves with the hubs' key that it is a hub.
func (h *Hub) connect(i fleet.Instance) (*comfyui.Client, error) {
	o := comfyui.Options{UserAgent: config.UserAgent, ViaAgent: !i.Direct, Dial: h.id.Dial()}
	u, err := url.Parse(i.URL)
	switch {
	case err == nil && u.Scheme == fleet.WorkerScheme && i.Kind == fleet.KindWorker:
		o.Dial = h.Workers.Dialer(i.Name)
		return comfyui.NewClient("http://worker", o)
	case err == nil && u.Scheme == fleet.OverflowScheme && i.Kind == fleet.KindOverflow:
		o.Dial = h.Endpoints.Dialer(i.Name)
		return comfyui.NewClient("http://overflow", o)
	case i.Agent == "" && i.Kind == fleet.KindA1111:
		o.Dial = h.direct.Dialer(i.Name)
		return comfyui.NewClient("http://a1111", o)
	case err == nil && u.Scheme == fleet.TunnelScheme:
		u.Scheme, u.Host = "http", i.Agent
		o.Dial = h.Tunnels.Dialer(i.Agent)
		return comfyui.NewClient(u.String(), o)
	}
	if !i.Direct && strings.HasPrefix(i.URL, "https://") {
		client, err := h.Authority.DialTLS(i.Key)
		if err != nil {
			return nil, fmt.Errorf("hub: %w", err)
		}
		o.TLS = client
	}
	return comfyui.NewClient(i.URL, o)
}
