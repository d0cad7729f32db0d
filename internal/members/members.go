// Package members is a hub's place among the others: which hubs and agents there are, which of the
// agents may report, and what becomes of their reports.
package members

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/gossip"
	"github.com/comfyhub/comfyhub/internal/pins"
)

// Owners know which key owns which agent's name; the hubs of one Redis share them.
type Owners interface {
	// Claim gives a name to a key unless another key has it, and returns the key that owns it from
	// now on.
	Claim(ctx context.Context, name, key string) (string, error)
	// Forget takes a name away from its key, and reports whether it had one.
	Forget(ctx context.Context, name string) (bool, error)
}

// Options are what the members need of a hub.
type Options struct {
	Identity config.Identity
	Fleet    *fleet.Registry
	// Owners are nil in a fleet without a gossip key.
	Owners Owners
	// Policy says which addresses are expected.
	Policy func() *fleet.Policy
	// Refused counts a report that was not taken.
	Refused func(reason string)
	Log     func() *slog.Logger
}

// Members are the hubs and agents in the gossip. They are safe for concurrent use.
type Members struct {
	o Options
	// gossip is nil while the hub is still joining.
	gossip    atomic.Pointer[gossip.Gossip]
	admission *admission
	// seen is told of reports that were taken, and relearn of instances that can run something else
	// than before.
	seen    func(fleet.Report)
	relearn func(instance string)

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

// New returns no members: the hub is to join them.
func New(o Options) *Members {
	m := &Members{o: o, abilities: map[string]ability{}, told: map[string]time.Time{}, hubs: otherHubs{dial: o.Identity.Dial()}}
	m.admission = newAdmission(o.Owners, m.take, m.refuse)
	return m
}

// Join joins the gossip, if there is one, as the hub with an id. seen is told of reports that were
// taken, and relearn of instances that can run something else than before.
func (m *Members) Join(ctx context.Context, self string, join []string, seen func(fleet.Report), relearn func(instance string)) error {
	m.seen, m.relearn = seen, relearn
	id := m.o.Identity
	if id.GossipBind == config.NoGossip {
		return nil
	}
	g, err := gossip.Join(ctx, gossip.Config{
		Role: gossip.RoleHub, Name: hubName(self), Version: config.Version,
		Bind: id.GossipBind, Advertise: id.GossipAdvertise, Key: id.GossipKey, Transport: id.Gossip(),
		Join: join, Logger: m.o.Log(),
		Expects:  func(a netip.Addr) bool { return m.o.Policy().Expects(a) },
		OnMember: m.member, OnReport: m.Admit,
		OnRefused: func(agent string, boot int64, err error) { m.refuse(fleet.Report{Agent: agent, Boot: boot}, err) },
	})
	if err == nil {
		m.gossip.Store(g)
	}
	return err
}

// member notes that agents and hubs come and go.
func (m *Members) member(e gossip.Event) {
	if e.Member.Role == gossip.RoleHub {
		m.hubs.note(e)
	}
	switch {
	case e.Member.Role != gossip.RoleAgent || !e.Left:
	case e.Announced:
		m.o.Fleet.AgentStopped(e.Member.Name, e.Member.Boot, e.Member.Key)
	default:
		m.o.Fleet.AgentLeft(e.Member.Name, e.Member.Boot, e.Member.Key)
	}
}

// take takes in what an agent says about its instances. That it comes from this agent has been
// proven.
func (m *Members) take(r fleet.Report) {
	r, faults := m.o.Policy().Restrict(r)
	err := m.o.Fleet.Apply(r)
	if errors.Is(err, fleet.ErrStale) {
		return
	}
	if err != nil {
		m.refuse(r, err)
	} else {
		m.seen(r)
	}
	for name, fault := range faults {
		m.complain("an instance is left out", name, fault)
		if r.Sender.Tunnel { // nothing in it is for the operator only
			m.o.Fleet.Refuse(r.Agent, fault)
		}
		if g := m.gossip.Load(); g != nil {
			g.Refuse(r.Agent, r.Boot, "instance "+name+": "+fault)
		}
	}
	for _, name := range m.learn(r) {
		m.relearn(name)
	}
}

// learn notes what instances can run, and returns those that have changed.
func (m *Members) learn(r fleet.Report) (changed []string) {
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
		if known, ok := m.o.Fleet.Instance(i.Name); !ok || known.Agent != r.Agent {
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
func (m *Members) refuse(r fleet.Report, err error) {
	kind := refusalKind(err)
	m.o.Refused(kind)
	m.complain("an agent's report is refused", r.Agent, err.Error())
	if r.Agent == "" || kind == "forged" {
		return // the agent it names has not sent it
	}
	m.o.Fleet.Refuse(r.Agent, err.Error())
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
func (m *Members) complain(what, name, reason string) {
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
		m.o.Log().Error(what, "name", name, "error", reason)
	}
}

// All returns those of the gossip, none while the hub is joining.
func (m *Members) All() []gossip.Member {
	if g := m.gossip.Load(); g != nil {
		return g.Members()
	}
	return nil
}

// Joining tells where agents join, host:port as they are told it, and whether they need the gossip
// key; "" where there is no gossip.
func (m *Members) Joining() (address string, keyed bool) {
	id := m.o.Identity
	if id.GossipBind == config.NoGossip {
		return "", false
	}
	return cmp.Or(id.GossipAdvertise, id.GossipBind), id.GossipKey != ""
}

// Count returns the numbers of members in the gossip, including this hub.
func (m *Members) Count() (hubs, agents int) {
	hubs = 1
	for _, member := range m.All() {
		if member.Role == gossip.RoleHub {
			hubs++
		} else {
			agents++
		}
	}
	return hubs, agents
}

// Close leaves the gossip.
func (m *Members) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var err error
	if g := m.gossip.Load(); g != nil {
		err = g.Leave(ctx)
	}
	m.admission.close()
	return err
}

// Admit takes a report in, if its agent may report. It does not wait.
func (m *Members) Admit(r fleet.Report) { m.admission.admit(r) }

// Forget takes the name of an agent away from its owner, and reports whether it had one.
func (m *Members) Forget(ctx context.Context, agent string) (bool, error) {
	return m.admission.forget(ctx, agent)
}

// Gone reports whether another hub, given as "id/boot", seems to be gone.
func (m *Members) Gone(ctx context.Context, hub string) bool { return m.hubs.gone(ctx, hub) }
