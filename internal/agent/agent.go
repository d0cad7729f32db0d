package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
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

// agent is the process: what it knows of its servers, and its membership in the
// group of hubs.
//
// Many methods: what it serves, reports and waits for is all about the same servers,
// under one lock.
type agent struct {
	config
	log    *slog.Logger
	boot   int64
	scheme string
	work   sync.WaitGroup

	fetches fetches
	disks   disks
	// hear is how hubs hear from the agent; nil while it still joins.
	hear announcer

	mu        sync.Mutex
	draining  bool   // it stops
	serving   string // host:port that hubs dial, empty until known
	seq       uint64
	instances []*instance
}

// announcer tells hubs of the agent.
type announcer interface {
	// Push makes the agent's report known. edge means that it must arrive at once. It does
	// not block.
	Push(edge bool)
	// Leave tells the hubs that the agent stops.
	Leave(ctx context.Context) error
}

// instance is one server.
type instance struct {
	target
	client  *comfyui.Client
	handler http.Handler
	restart *restarter
	// tidier deletes output files that the hub keeps; nil if nothing does.
	tidier *tidier
	// facade presents a server that is no ComfyUI; nil for one that is.
	facade *facade

	// The agent's mutex guards the rest.
	seen  comfyui.Observation
	at    placement
	load  string // what else uses its GPU
	asked asked
}

// run runs the agent until ctx ends.
func (c config) run(ctx context.Context) error {
	if c.identity.Key() == "" {
		c.identity = gossip.NewIdentity()
	}
	a := &agent{config: c, log: c.logger, boot: time.Now().UnixMilli(), disks: disks{reserve: int64(c.reserve), space: space}}
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
		a.hear = p
		p.start(ctx)
		defer p.cut()
	} else if err := a.join(ctx, listener.Addr()); err != nil {
		return errors.Join(err, listener.Close())
	}
	requests, drop := context.WithCancel(context.WithoutCancel(ctx))
	defer drop()
	server := a.server(requests)
	served := make(chan error, 1)
	a.work.Go(func() { served <- server.Serve(listener) })
	a.log.Info("agent started", "name", a.name, "serving", listener.Addr().String(), "instances", len(a.instances),
		"key", gossip.Fingerprint(a.identity.Key()))
	a.mu.Lock() // Held: watch begins a goroutine
	for _, i := range a.instances {
		a.watch(ctx, i)
	}
	a.mu.Unlock()
	if len(a.targets) == 0 {
		a.work.Go(func() { a.search(ctx) })
	}
	a.work.Go(func() { a.watchDisks(ctx) })
	a.work.Go(func() { a.tidy(ctx) })
	if look := nvidia(); look != nil && !a.simulated {
		a.work.Go(func() { a.watchLoad(ctx, look) })
	}

	defer a.stopRestarts()
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
	if err := a.hear.Leave(ctx); err != nil {
		a.log.Debug("cannot announce that the agent leaves", "error", err)
	}
}

// add adds a server to the agent's.
func (a *agent) add(t target) error {
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
	a.mu.Lock()
	defer a.mu.Unlock()
	a.instances = append(a.instances, i)
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
			a.observe(i, o)
		})
	})
}

// onThisMachine reports whether a server's address is this machine's own, so that
// its model folders can be read.
func onThisMachine(address string) bool {
	u, err := url.Parse(address)
	return err == nil && gossip.IsLoopback(u.Hostname())
}

// observe records what a server does, and tells the hubs.
func (a *agent) observe(i *instance, o comfyui.Observation) {
	a.mu.Lock()
	before := i.seen
	i.seen = o
	i.asked.take(o)
	a.mu.Unlock()
	edge := before.Up != o.Up || before.Idle() != o.Idle() ||
		(before.Foreign > 0) != (o.Foreign > 0) || before.ObjectInfoHash != o.ObjectInfoHash
	a.hear.Push(edge)
}

func (a *agent) find(name string) *instance {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, i := range a.instances {
		if i.name == name {
			return i
		}
	}
	return nil
}

// join enters the gossip. There it learns the address at which this machine is
// known, where hubs also look for the instances.
func (a *agent) join(ctx context.Context, served net.Addr) error {
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
	group, err := gossip.Join(ctx, c)
	if err != nil {
		if errors.Is(err, gossip.ErrKeyRequired) {
			return fmt.Errorf("%w: give --key-file or %s, the same as at the hub", err, keyVariable)
		}
		return err
	}
	a.hear = group
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

// report returns what the hubs are told.
func (a *agent) report() fleet.Report {
	a.mu.Lock()
	again := make([]restarts, len(a.instances))
	list := a.instances
	a.mu.Unlock()
	for n, i := range list { // its lock is taken first
		again[n] = i.restart.state()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seq++
	r := fleet.Report{Agent: a.name, Boot: a.boot, Seq: a.seq}
	if a.serving == "" {
		return r // gossip asks before it has reported our address
	}
	for n, i := range list {
		described := i.report(a.scheme + "://" + a.serving)
		described.Draining = a.draining
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

// report describes one server; base is the URL at which the agent serves.
func (i *instance) report(base string) fleet.InstanceReport {
	o := i.seen
	r := fleet.InstanceReport{
		Name: i.name, URL: base + comfyui.InstancePath + i.name, Kind: i.kind(),
		Up: o.Up, Reason: o.Reason,
		Queue: o.QueueRemaining, Foreign: o.Foreign, Load: i.load, OthersMemory: i.at.others, OthersUse: i.at.use,
		Running: o.Running, Job: o.RunningMark.Job, Fence: o.RunningMark.Fence,
		Version: o.Version.Text, GPU: o.GPU, GPUType: o.GPUType, VRAMTotal: o.VRAMTotal, VRAMFree: o.VRAMFree,
		ObjectInfo: o.ObjectInfoHash, Boot: o.Boot,
		Restarting: i.asked.due(), Restarted: i.asked.restarted != 0 && i.asked.restarted == o.Boot,
	}
	if i.direct != "" {
		r.URL, r.Direct = i.direct, true
	}
	if !o.Since.IsZero() {
		r.Since = o.Since.UnixMilli()
	}
	return r
}
