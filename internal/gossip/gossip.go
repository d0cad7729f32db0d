package gossip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/comfyhub/comfyhub/internal/fleet"
)

// DefaultPort is where members listen if nothing else is said.
const DefaultPort = 7946

// Config says who this member is and what it wants to know.
type Config struct {
	Role Role
	// Name is the member's, see [CheckName].
	Name string
	// Boot is when this process started, in milliseconds since the Unix
	// epoch. Default: now.
	Boot int64
	// Version of the program, shown to others.
	Version string
	// Bind is the host:port to listen at, UDP and TCP. An empty host means
	// all addresses, port 0 a free one.
	Bind string
	// Advertise is the host:port that others are told, where it is not Bind:
	// behind port forwarding. Default: from Bind.
	Advertise string
	// Key is any text, the same at all members, or several on a line each, see
	// [Keys]. It may be empty on loopback only.
	Key string
	// Join are addresses of members, host:port or host, tried again and again
	// until a hub is found and from time to time afterwards.
	Join []string
	// Logger gets comings and goings. Default: none.
	Logger *slog.Logger
	// OnMember gets every other member's coming and going. It and OnReport
	// are called from one goroutine, after Join has returned or during it.
	OnMember func(Event)
	// OnReport gets the reports of agents, each with its proven sender: those
	// that cannot be read or are not of the agent that they name are left
	// out, those out of order are not.
	OnReport func(fleet.Report)
	// OnRefused gets what was left out: the agent that it names, empty when
	// not even that can be read, and [ErrUnsigned], [ErrForged] or
	// [fleet.ErrReport]. Anybody in the group can make one of these.
	OnRefused func(agent string, err error)
	// Identity is what an agent signs with. Default: a new one.
	Identity Identity
	// Report makes the current report of an agent, with the next number. It
	// is called from several goroutines. Nil for hubs.
	Report func() fleet.Report

	tune func(*memberlist.Config) // for tests
}

// Gossip is this process's membership in the group.
type Gossip struct {
	config   Config
	log      *slog.Logger
	list     *memberlist.Memberlist
	meta     meta
	local    Member
	delegate *delegate
	roster   roster
	inbox    *inbox
	hubs     senders
	stop     context.CancelFunc
	work     sync.WaitGroup

	// gone are the members that have left, ended those of them that have said
	// so themselves. Both belong to the goroutine of the inbox, and so does
	// refusedAt.
	gone, ended map[process]time.Time
	// refusedAt is when a hub's refusal was last logged.
	refusedAt time.Time
	tell      teller
}

// process is one life of a member. The key is in it so that nobody can end
// another one's.
type process struct {
	role Role
	name string
	boot int64
	key  string
}

func processOf(m Member) process { return process{m.Role, m.Name, m.Boot, m.Key} }

const (
	// repeatEvery is how often an agent reports without need, which repairs
	// what the network has lost.
	repeatEvery = 3 * time.Second
	// tcpTimeout bounds connecting to other members, and with it how long a
	// farewell can take.
	tcpTimeout = 3 * time.Second
)

// Join becomes a member. It does not wait for others and does not fail when
// there are none: agents and hubs start in any order. Errors are about this
// process: its address, its name, its key.
func Join(ctx context.Context, c Config) (*Gossip, error) {
	c.Boot = cmp.Or(c.Boot, time.Now().UnixMilli())
	c.Key = strings.Join(Keys(c.Key), "\n") // a text of blank lines is no key
	if c.Role == RoleAgent && c.Identity.none() {
		c.Identity = NewIdentity()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	g := &Gossip{config: c, log: c.Logger, inbox: newInbox(), gone: map[process]time.Time{}, ended: map[process]time.Time{}}
	settings, err := g.settings()
	if err != nil {
		return nil, err
	}
	g.list, err = memberlist.Create(settings)
	if err != nil {
		return nil, fmt.Errorf("gossip at %s: %w", c.Bind, err)
	}
	g.introduce()
	ctx, g.stop = context.WithCancel(context.WithoutCancel(ctx))
	g.hubs = senders{send: g.sendReliable, running: map[string]*sender{}}
	g.work.Go(func() { g.inbox.run(ctx, g.event, g.message, g.lost) })
	g.work.Go(func() { g.keepJoined(ctx) })
	if c.Report != nil {
		g.work.Go(func() { g.repeat(ctx) })
	}
	return g, nil
}

// settings is memberlist's configuration: its own for local networks, made
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
		Role: c.Role, Name: c.Name, Boot: c.Boot, Version: c.Version[:min(len(c.Version), maxVersion)], Protocol: protocolSigned,
	}.fit()
	m.Name = g.meta.node()
	g.delegate = &delegate{self: m.Name, roster: &g.roster, inbox: g.inbox, meta: g.meta.encode()}
	if c.Report != nil {
		g.delegate.state = func() []byte { return g.reportFor(protocolSigned) }
	}
	m.Delegate, m.Events, m.Alive = g.delegate, g.delegate, g.delegate
	if c.tune != nil {
		c.tune(m)
	}
	return m, nil
}

// introduce completes the description of this member by its address, which is
// known only now, and by an agent's signature. Nobody else knows of it yet.
func (g *Gossip) introduce() {
	defer func() { g.local, _ = memberOf(g.list.LocalNode()) }()
	if g.config.Role != RoleAgent {
		return
	}
	g.meta.Addr = g.list.LocalNode().Address()
	g.meta = g.meta.sign(g.config.Identity)
	g.delegate.meta = g.meta.encode()
	if err := g.list.UpdateNode(time.Second); err != nil {
		g.log.Debug("the description is told later", "error", err)
	}
}

// Local is this member as the others see it.
func (g *Gossip) Local() Member { return g.local }

// Members lists the other members that are thought to be alive.
func (g *Gossip) Members() []Member {
	var list []Member
	for _, n := range g.roster.all() {
		if m, ok := memberOf(n); ok {
			list = append(list, m)
		}
	}
	return list
}

func (g *Gossip) event(e Event) {
	p := processOf(e.Member)
	if e.farewell {
		note(g.ended, p, true)
	}
	if _, gone := g.gone[p]; gone && e.Left {
		return // what a member has said, memberlist finds out as well
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

// note adds a process to a set or takes it out. After an hour nothing of it can
// be under way any more.
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
	g.log.Warn("reports came faster than they could be handled; their repetitions will do", "dropped", n)
}

// Leave says farewell, so that nobody has to find out, and ends the membership.
func (g *Gossip) Leave(ctx context.Context) error {
	timeout := time.Second
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline))
	}
	g.hubs.close()
	g.tell.wait()
	g.sayFarewell()
	err := g.list.Leave(max(timeout, time.Millisecond))
	return errors.Join(err, g.shutdown())
}

// shutdown ends the membership without a word, as a crash would.
func (g *Gossip) shutdown() error {
	g.stop()
	g.tell.wait()
	err := g.list.Shutdown()
	g.work.Wait()
	g.hubs.close()
	return err
}
