package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/a1111"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/gossip"
)

// config configures an agent.
type config struct {
	name    string
	version string
	// join are the addresses of hubs.
	join []string
	// hubs are the sites of hubs to which the agent opens tunnels instead of joining them,
	// and token is what admits it there.
	hubs  []string
	token string
	// targets are the servers. If there are none, the conventional ports are
	// searched.
	targets []target
	// bind, advertise and serve are addresses; empty means the default.
	bind, advertise, serve string
	network                Network
	key                    string
	// identity is the agent's own. Hubs recognize the agent by it, and reserve its
	// name for it.
	identity gossip.Identity
	// hubPin is what it knows of its hubs: they alone may call it.
	hubPin *gossip.HubPin
	machine
	// state is the folder for what outlives the agent; empty if nothing does.
	state string
	// stopTimeout is how long a stopping agent waits for the runs of its servers; 0
	// means not at all. hurry is closed when it must wait no longer.
	stopTimeout time.Duration
	hurry       <-chan struct{}
	logger      *slog.Logger
	// simulated says that no server uses a GPU of this machine.
	simulated bool
	// searchEvery is the pause between two searches. Default: 10 s.
	searchEvery time.Duration
	// ports are searched. Default: conventionalPorts.
	ports []int
}

// agent is the process: it looks after its servers, and is a member of the group of hubs.
type agent struct {
	config
	log  *slog.Logger
	boot int64
	work sync.WaitGroup

	servers *servers
	door    *door
	disks   disks

	mu      sync.Mutex
	serving string // host:port that hubs dial, empty until known
	seq     uint64
}

func newAgent(c config) *agent {
	s := &servers{}
	return &agent{
		config: c, log: c.logger, boot: time.Now().UnixMilli(), servers: s, door: &door{servers: s, log: c.logger, serve: c.serve},
		disks: disks{reserve: int64(c.reserve), space: space},
	}
}

// run runs the agent until ctx ends.
func (c config) run(ctx context.Context) error {
	if c.identity.Key() == "" {
		c.identity = gossip.NewIdentity()
	}
	a := newAgent(c)
	listener, err := a.listen()
	if err != nil {
		return err
	}
	p, pulls := listener.(*puller)
	stopped := ctx
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer a.work.Wait()
	defer cancel()
	for _, t := range a.targets {
		if err := a.add(t); err != nil {
			return errors.Join(err, listener.Close())
		}
	}
	if pulls {
		a.servers.hear, a.door.reports = p, p.serveReports
		p.start(ctx)
		defer p.cut()
	} else if err := a.join(ctx, stopped, listener.Addr()); errors.Is(err, context.Canceled) {
		return listener.Close() // it was stopped while it waited
	} else if err != nil {
		return errors.Join(err, listener.Close())
	}
	requests, drop := context.WithCancel(context.WithoutCancel(ctx))
	defer drop()
	server := a.server(requests)
	served := make(chan error, 1)
	a.work.Go(func() { served <- server.Serve(listener) })
	a.log.Info("agent started", "name", a.name, "serving", listener.Addr().String(), "instances", len(a.servers.all()),
		"key", gossip.Fingerprint(a.identity.Key()))
	for _, i := range a.servers.all() {
		a.watch(ctx, i)
	}
	if len(a.targets) == 0 {
		a.work.Go(func() { a.search(ctx) })
	}
	a.work.Go(func() { a.watchDisks(ctx) })
	a.work.Go(func() { a.tidy(ctx) })
	if look := nvidia(); look != nil && !a.simulated {
		a.work.Go(func() { a.watchLoad(ctx, look) })
	}

	defer a.servers.stopRestarts()
	select {
	case <-stopped.Done():
		err = a.drain(served)
	case err = <-served:
	}
	if err != nil {
		err = fmt.Errorf("serving instances: %w", err)
	}
	a.log.Info("agent stops; running prompts go on")
	a.leave()
	last, cancelLast := context.WithTimeout(requests, time.Second)
	defer cancelLast()
	if server.Shutdown(last) != nil { // cut what has not ended by then
		return errors.Join(err, server.Close())
	}
	return err
}

// leave tells the hubs first, so that they send this machine no further job.
func (a *agent) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := a.servers.hear.Leave(ctx); err != nil {
		a.log.Debug("cannot announce that the agent leaves", "error", err)
	}
}

// add adds a server to the agent's.
func (a *agent) add(t target) error {
	if len(a.servers.all()) >= fleet.MaxInstances {
		return errFull
	}
	i, err := a.open(t)
	if err != nil {
		return err
	}
	i.seen.Reason = "not reached yet"
	if i.tidier, err = a.openTidier(t); err != nil {
		return err
	}
	if a.restartCommand != "" {
		i.restart = a.newRestarter(i)
	}
	a.servers.add(i)
	return nil
}

// watch follows a server until ctx ends.
func (a *agent) watch(ctx context.Context, i *instance) {
	a.work.Go(func() {
		defer i.close()
		o := comfyui.WatchOptions{Logger: a.log.With("instance", i.name), Folders: !i.a1111 && onThisMachine(i.url)}
		if i.a1111 {
			o.ObjectInfoEvery = a1111.LearnEvery
		}
		comfyui.Watch(ctx, i.client, o, func(o comfyui.Observation) {
			a.servers.observe(i, o)
		})
	})
}

// onThisMachine reports whether a server's address is this machine's own, so that
// its model folders can be read.
func onThisMachine(address string) bool {
	u, err := url.Parse(address)
	return err == nil && gossip.IsLoopback(u.Hostname())
}

// join enters the gossip. There it learns the address at which this machine is
// known, where hubs also look for the instances. What goes on afterwards ends with ctx; stopped ends
// the wait for a network.
func (a *agent) join(ctx, stopped context.Context, served net.Addr) error {
	c := gossip.Config{
		Role: gossip.RoleAgent, Name: a.name, Boot: a.boot, Version: a.version,
		Bind: a.bind, Advertise: a.advertise, Key: a.key, Identity: a.identity, Join: a.config.join,
		Logger: a.log, Report: a.report, Transport: a.network.Gossip,
	}
	if c.Bind == "" {
		c.Bind = fmt.Sprintf(":%d", gossip.DefaultPort)
		if a.onLoopback() {
			c.Bind = loopbackLike(a.config.join)
		}
	}
	if err := c.AwaitRoute(stopped); err != nil {
		return err
	}
	group, err := gossip.Join(ctx, c)
	if err != nil {
		if errors.Is(err, gossip.ErrKeyRequired) {
			return fmt.Errorf("%w: give --key-file or %s, the same as at the hub", err, keyVariable)
		}
		return err
	}
	a.servers.hear = group
	host, port, err := net.SplitHostPort(served.String())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host, _, err = net.SplitHostPort(group.Local().Addr)
	}
	if err != nil {
		a.leave()
		return fmt.Errorf("address of this machine: %w", err)
	}
	a.mu.Lock()
	a.serving = net.JoinHostPort(host, port)
	a.mu.Unlock()
	group.Push(true) // hubs that were met before have heard nothing
	a.log.Info("agent joins the hubs", "gossip", group.Local().Addr)
	a.work.Go(func() { a.watchNames(ctx, group) })
	return nil
}

// loopbackLike returns a free loopback port, of the address family that the hubs of
// this machine use, because packets do not cross from one family to the other. The
// usual port is theirs.
func loopbackLike(join []string) string {
	for _, address := range join {
		if ip := net.ParseIP(hostOf(address)); ip == nil || ip.To4() != nil {
			return "127.0.0.1:0"
		}
	}
	return "[::1]:0"
}

// hostOf returns the host of an address that may have no port.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return strings.Trim(address, "[]")
	}
	return host
}

// onLoopback reports whether all hubs are on this machine.
func (a *agent) onLoopback() bool {
	for _, address := range a.config.join {
		if !gossip.IsLoopback(hostOf(address)) {
			return false
		}
	}
	return true
}

// watchNames logs clearly if another agent uses the same name. The hubs accept the
// one that was there first. An agent that died without announcing it is still
// listed for some seconds, so only the second sighting counts.
func (a *agent) watchNames(ctx context.Context, group *gossip.Gossip) {
	const every = 20 * time.Second
	tick := time.NewTicker(every)
	defer tick.Stop()
	before := map[gossip.Member]bool{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := map[gossip.Member]bool{}
		for _, m := range group.Members() {
			if m.Role != gossip.RoleAgent || m.Name != a.name {
				continue
			}
			now[m] = true
			if before[m] {
				a.log.Error("refused: another agent already has this name; give one of them another --name",
					"name", a.name, "other", m.Addr, "other_started", time.UnixMilli(m.Boot).Format(time.RFC3339))
			}
		}
		before = now
	}
}

// report returns what the hubs are told; the zero value, which says nothing, while the agent joins.
func (a *agent) report() fleet.Report {
	list := a.servers.all()
	again := make([]restarts, len(list))
	for n, i := range list { // its lock is taken first
		again[n] = i.restart.state()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.serving == "" {
		return fleet.Report{} // gossip asks before it has reported our address
	}
	a.seq++
	r := fleet.Report{Agent: a.name, Boot: a.boot, Seq: a.seq}
	a.servers.mu.Lock() // within the other one, so that a higher number is never an older state
	defer a.servers.mu.Unlock()
	for n, i := range list {
		described := i.report(a.door.scheme + "://" + a.serving)
		described.Draining = a.servers.draining
		described.Device = i.device()
		disk, full, _ := a.disks.of(i.folders())
		described.DiskFree, described.DiskSize, described.DiskFull = disk.free, disk.size, full
		described.Tidies = i.tidier != nil
		described.Restarts, described.RestartError = again[n].count, again[n].err
		if !again[n].next.IsZero() {
			described.RestartAt = again[n].next.UnixMilli()
		}
		r.Instances = append(r.Instances, described)
	}
	return r
}
