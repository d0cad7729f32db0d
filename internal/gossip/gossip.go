package gossip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/comfyhub/comfyhub/internal/fleet"
)

// DefaultPort is the port on which members listen by default.
const DefaultPort = 7946

// Config describes this member and what it wants to be told.
type Config struct {
	Role Role
	// Name is the member's name, see [CheckName].
	Name string
	// Boot is when this process started, in milliseconds since the Unix epoch.
	// Default: now.
	Boot int64
	// Version of the program, shown to others.
	Version string
	// Bind is the host:port to listen on, UDP and TCP. An empty host means all
	// addresses, port 0 a free one.
	Bind string
	// Advertise is the host:port that others are told, if it is not Bind: for port
	// forwarding. Default: from Bind.
	Advertise string
	// Transport carries everything where that takes something else than the network: a
	// simulated one. Default: UDP and TCP at Bind.
	Transport Transport
	// Key is any text, the same for all members, or several with one per line, see
	// [Keys]. It may be empty on loopback only.
	Key string
	// Join lists addresses of members, host:port or host. They are tried until a
	// hub is found, and from time to time afterwards.
	Join []string
	// Expects reports whether the operator expects members at an address. Members at
	// others are believed to be where they say once a connection has come from there.
	// Default: only those.
	Expects func(netip.Addr) bool
	// Logger records members that join and leave. Default: none.
	Logger *slog.Logger
	// OnMember is called when another member joins or leaves. It and OnReport are
	// called from one goroutine, possibly before Join has returned.
	OnMember func(Event)
	// OnReport is called with the reports of agents, each with its proven sender.
	// Reports that cannot be read or are not from the agent that they name are left
	// out; reports that are out of order are not.
	OnReport func(fleet.Report)
	// OnRefused is called for what was left out, with the agent that it names
	// (empty if not even that can be read), its boot if it is proven that the agent has
	// sent it, and [ErrUnsigned], [ErrForged] or [fleet.ErrReport]. Anybody in the group
	// can cause one of these.
	OnRefused func(agent string, boot int64, err error)
	// Identity signs an agent's messages. Default: a new one.
	Identity Identity
	// Report returns the current report of an agent, with the next number. It is
	// called from several goroutines. A report of no agent is not sent: it has nothing
	// to say yet. Nil for hubs.
	Report func() fleet.Report

	tune func(*memberlist.Config) // for tests
}

// Gossip is this process's membership in the group.
//
// Many methods: memberlist calls it for every message and every change of
// membership, and each call needs the same members, keys and numbers.
type Gossip struct {
	config   Config
	log      *slog.Logger
	list     *memberlist.Memberlist
	meta     meta
	local    Member
	delegate *delegate
	members  memberSet
	gate     gate
	inbox    *inbox
	hubs     *senders
	stop     context.CancelFunc
	work     sync.WaitGroup

	// gone holds the members that have left, ended those that announced it
	// themselves. Like refusedAt, both are used by the inbox goroutine only.
	gone, ended map[process]time.Time
	// unmet holds the members from whose addresses nothing has come, since their first
	// report, for the same goroutine.
	unmet map[process]time.Time
	// proven are the descriptions of agents, for the inbox goroutine too.
	proven proven
	// refusedAt is when a hub's refusal was last logged.
	refusedAt time.Time
	refusals  limitedSender
	// cutOff is what this hub has said of itself.
	cutOff atomic.Bool
}

// process identifies one run of a member. It includes the key, so that nobody can
// end another member's run.
type process struct {
	role Role
	name string
	boot int64
	key  string
}

func processOf(m Member) process { return process{m.Role, m.Name, m.Boot, m.Key} }

const (
	// repeatEvery is how often an agent reports even if nothing has changed, to
	// make up for lost reports.
	repeatEvery = 3 * time.Second
	// tcpTimeout bounds connecting to other members, and so how long announcing a
	// leave can take.
	tcpTimeout = 3 * time.Second
)

// Join becomes a member. It does not wait for others and does not fail if there are
// none: agents and hubs may start in any order. Errors concern this process only:
// its address, its name, its key.
func Join(ctx context.Context, c Config) (*Gossip, error) {
	c.Boot = cmp.Or(c.Boot, time.Now().UnixMilli())
	c.Key = strings.Join(Keys(c.Key), "\n") // a text of blank lines is no key
	if c.Role == RoleAgent && c.Identity.none() {
		c.Identity = NewIdentity()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	g := &Gossip{config: c, log: c.Logger, inbox: newInbox(), gone: map[process]time.Time{}, ended: map[process]time.Time{}, unmet: map[process]time.Time{}}
	g.gate.keyed, g.gate.hub, g.gate.expects = c.Key != "", c.Role == RoleHub, c.Expects
	settings, err := g.settings()
	if err != nil {
		return nil, err
	}
	door, err := guard(settings, &g.gate, c.Transport)
	if err != nil {
		return nil, fmt.Errorf("gossip at %s: %w", c.Bind, err)
	}
	settings.Transport = door
	g.list, err = memberlist.Create(settings)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("gossip at %s: %w", c.Bind, err), door.Shutdown())
	}
	g.introduce()
	ctx, g.stop = context.WithCancel(context.WithoutCancel(ctx))
	g.hubs = newSenders(g.sendReliable)
	g.work.Go(func() { g.inbox.run(ctx, g.event, g.message, g.lost) })
	g.work.Go(func() { g.keepJoined(ctx) })
	if c.Report != nil {
		g.work.Go(func() { g.repeat(ctx) })
	}
	return g, nil
}

// settings returns memberlist's configuration: its own for local networks, made
// faster. Jobs are recovered by leases, so a wrong suspicion costs little.
func (g *Gossip) settings() (*memberlist.Config, error) {
	c := g.config
	if err := CheckName(c.Name); err != nil {
		return nil, err
	}
	m := memberlist.DefaultLANConfig()
	m.GossipInterval = 100 * time.Millisecond
	m.SuspicionMult = 3
	m.SuspicionMaxTimeoutMult = 2
	m.DeadNodeReclaimTime = 30 * time.Second
	m.PushPullInterval = 15 * time.Second
	m.TCPTimeout = tcpTimeout
	m.EnableCompression = false
	m.Label = "comfyhub"
	m.Logger = newLog(c.Logger)
	if err := g.addresses(m); err != nil {
		return nil, err
	}
	var err error
	if m.Keyring, err = keyring(c.Key); err != nil {
		return nil, err
	}
	for _, key := range Keys(c.Key) {
		if len(key) < 16 {
			c.Logger.Warn("the gossip key is short; a random one such as that of `openssl rand -base64 32` cannot be guessed")
		}
	}
	g.meta = meta{
		Role: c.Role, Name: c.Name, Boot: c.Boot, Version: c.Version[:min(len(c.Version), maxVersion)], Protocol: protocolHubs,
	}.fit()
	m.Name = g.meta.node()
	g.delegate = &delegate{self: m.Name, members: &g.members, gate: &g.gate, inbox: g.inbox}
	g.delegate.describe(g.meta)
	if c.Report != nil {
		g.delegate.state = func() []byte { return g.reportFor(protocolSigned) }
	}
	m.Delegate, m.Events, m.Alive = g.delegate, g.delegate, g.delegate
	if c.tune != nil {
		c.tune(m)
	}
	return m, nil
}

// introduce completes the description of this member with its address, which is
// known only now, and with an agent's signature. Nobody else has seen it yet.
func (g *Gossip) introduce() {
	defer func() { g.local, _ = memberOf(g.list.LocalNode()) }()
	if g.config.Role != RoleAgent {
		return
	}
	g.meta.Addr = g.list.LocalNode().Address()
	g.meta = g.meta.sign(g.config.Identity)
	g.announce(g.meta)
}

// announce tells the others how this member describes itself now.
func (g *Gossip) announce(m meta) {
	g.delegate.describe(m)
	if err := g.list.UpdateNode(time.Second); err != nil {
		g.log.Debug("cannot announce this member's description yet", "error", err)
	}
}

// SetCutOff tells the others whether this hub is cut off from the queue. It takes up to a second if
// that is news.
func (g *Gossip) SetCutOff(cut bool) {
	if g.cutOff.Swap(cut) == cut {
		return
	}
	m := g.meta
	m.CutOff = cut
	g.announce(m)
}

// Local returns this member as the others see it.
func (g *Gossip) Local() Member { return g.local }

// Members returns the other members that are believed to be alive.
func (g *Gossip) Members() []Member {
	var list []Member
	for _, n := range g.members.all() {
		if m, ok := memberOf(n); ok {
			list = append(list, m)
		}
	}
	return list
}

func (g *Gossip) event(e Event) {
	p := processOf(e.Member)
	if e.Announced {
		note(g.ended, p, true)
	}
	if _, gone := g.gone[p]; gone && e.Left {
		return // memberlist also reports a leave that was announced
	}
	note(g.gone, p, e.Left)
	what := "member joined"
	if e.Left {
		what = "member left"
	}
	g.log.Info(what, "role", string(e.Member.Role), "name", e.Member.Name, "address", e.Member.Addr)
	if g.config.OnMember != nil {
		g.config.OnMember(e)
	}
	if !e.Left && e.Member.Role == RoleHub && g.config.Report != nil {
		g.Push(true) // a new hub knows nothing yet
	}
}

// maxNoted bounds the processes that are remembered.
const maxNoted = 10_000

// note adds a process to a set or removes it. Entries older than an hour are
// dropped: nothing from them can still be on its way.
func note(set map[process]time.Time, p process, in bool) {
	now := time.Now()
	for old, at := range set {
		if now.Sub(at) > time.Hour || len(set) > maxNoted {
			delete(set, old)
		}
	}
	delete(set, p)
	if in {
		set[p] = now
	}
}

func (g *Gossip) lost(n int) {
	g.log.Warn("reports arrived too fast and were dropped; agents repeat them", "dropped", n)
}

// Leave announces that this process leaves, so that nobody has to find out, and
// ends the membership.
func (g *Gossip) Leave(ctx context.Context) error {
	timeout := time.Second
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline))
	}
	g.hubs.close()
	g.refusals.wait()
	g.announceLeave()
	if err := g.list.Leave(max(timeout, time.Millisecond)); err != nil {
		// Nobody is there to hear it, as when a whole fleet on one machine is stopped.
		g.log.Info("left the group without being heard", "error", err)
	}
	return g.shutdown()
}

// shutdown ends the membership without announcing it, as a crash would.
func (g *Gossip) shutdown() error {
	g.stop()
	g.refusals.wait()
	err := g.list.Shutdown()
	g.work.Wait()
	g.hubs.close()
	return err
}
