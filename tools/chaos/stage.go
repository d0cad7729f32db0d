package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/testing/freeport"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

// caddyfile is the configuration of each hub. What it has beyond the default
// Caddyfile tells several hubs where to find each other, keeps the history of a long
// run, and logs at level debug: that says why an end passed for read.
const caddyfile = `{
	admin {$COMFYHUB_ADMIN}
	grace_period 10s
	persist_config off
	metrics
	log default {
		exclude comfyhub
	}
	log comfyhub {
		include comfyhub
		level debug
	}
	comfyhub {
		redis {env.COMFYHUB_REDIS}
		data {$COMFYHUB_DATA}
		storage {env.COMFYHUB_STORAGE}
		history 1000000
		gossip {
			bind {$COMFYHUB_GOSSIP}
			advertise %s
			join %s
		}
	}
}
http://%s {
	bind 127.0.0.1
	comfyhub
}
`

// sizes are the numbers of what makes up a stage.
type sizes struct{ hubs, agents, pull, instances, clients int }

// hub is one hub with the proxies on both sides of it.
type hub struct {
	*programs.Fleet
	name    string
	clients *proxy // between it and the clients
	redis   *proxy // between it and a single Redis
	gossip  *ear   // in front of it
}

// server is one simulated instance with the proxy in front of it.
type server struct {
	*programs.Program
	addr  string
	agent *proxy // between it and its agent
}

// stage is everything that runs: hubs, agents and simulated instances around one
// Redis and one storage.
type stage struct {
	dir, storage string
	store        *store
	disk         *disk
	hubs         []*hub
	agents       []*programs.Program
	servers      []*server
	tunnels      []*proxy // between agents that only dial out and hubs

	mu      sync.Mutex
	proxies []*proxy
	ears    []*ear // of the hubs, then of the agents
}

// newStage starts everything and waits until all instances are idle.
func newStage(ctx context.Context, set programs.Set, dir, form string, n sizes) (_ *stage, err error) {
	s := &stage{dir: dir}
	if s.disk, err = newDisk(filepath.Join(dir, diskFolder)); err != nil {
		return s, err
	}
	s.storage = filepath.Join(s.disk.path, "storage")
	for _, folder := range []string{s.storage, s.temp()} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return s, err
		}
	}
	if s.store, err = startStore(ctx, form, s.dir); err != nil {
		return s, err
	}
	if err := s.startHubs(ctx, set, n.hubs); err != nil {
		return s, err
	}
	if err := s.startServers(ctx, n.instances); err != nil {
		return s, err
	}
	if err := s.startAgents(ctx, n.agents, n.pull); err != nil {
		return s, err
	}
	for _, h := range s.hubs {
		if _, err := h.AwaitIdle(ctx, n.instances); err != nil {
			return s, err
		}
	}
	return s, nil
}

// diskFolder is the folder of the disk in that of the stage.
const diskFolder = "disk"

// temp is the folder that simulated instances write to.
func (s *stage) temp() string { return filepath.Join(s.dir, "temp") }

func (s *stage) proxy(target string) (*proxy, error) {
	p, err := newProxy(target)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proxies = append(s.proxies, p)
	return p, nil
}

func (s *stage) startHubs(ctx context.Context, set programs.Set, count int) error {
	for n := range count {
		name := fmt.Sprintf("hub-%d", n+1)
		dir := filepath.Join(s.dir, name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		f, err := programs.NewFleet(set, dir, s.store.url)
		if err != nil {
			return err
		}
		var redis *proxy
		if s.store.addr != "" {
			if redis, err = s.proxy(s.store.addr); err != nil {
				return err
			}
			f.Redis = "redis://" + redis.addr()
		}
		clients, err := s.proxy(f.Addr)
		if err != nil {
			return err
		}
		f.Env = []string{"COMFYHUB_STORAGE=" + s.storage, "TMPDIR=" + s.temp()}
		f.Data = filepath.Join(s.disk.path, name)
		gossip, err := s.listen(f.Gossip)
		if err != nil {
			return err
		}
		s.hubs = append(s.hubs, &hub{f, name, clients, redis, gossip})
	}
	for _, h := range s.hubs {
		h.Set.Caddyfile = filepath.Join(h.Dir, "Caddyfile")
		text := fmt.Sprintf(caddyfile, h.gossip.addr(), strings.Join(s.gossip(h), " "), h.Addr)
		if err := os.WriteFile(h.Set.Caddyfile, []byte(text), 0o600); err != nil {
			return err
		}
		if err := h.StartHub(ctx); err != nil {
			return err
		}
	}
	return nil
}

// gossip returns the gossip addresses of all hubs except one.
func (s *stage) gossip(except *hub) []string {
	var all []string
	for _, h := range s.hubs {
		if h != except {
			all = append(all, h.gossip.addr())
		}
	}
	return all
}

func (s *stage) startServers(ctx context.Context, count int) error {
	for n := range count {
		addr, err := freeport.Address()
		if err != nil {
			return err
		}
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return err
		}
		p, err := programs.Start(programs.Spec{
			Name: fmt.Sprintf("instance-%d", n+1), Path: s.hubs[0].Set.Agent, Dir: s.dir, Env: []string{"TMPDIR=" + s.temp()},
			Args: []string{"simulate", "--count", "1", "--port", port, "--preview-method", "auto"},
		})
		if err != nil {
			return err
		}
		between, err := s.proxy(addr)
		if err != nil {
			return err
		}
		one := &server{p, addr, between}
		s.servers = append(s.servers, one)
		if err := one.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// await waits until the instance answers.
func (s *server) await(ctx context.Context) error {
	return s.Await(ctx, "it answers", func(ctx context.Context) error { return programs.Get(ctx, "http://"+s.addr+"/queue", nil) })
}

// programs returns all programs of the stage, in the order in which they started.
func (s *stage) programs() []*programs.Program {
	var all []*programs.Program
	if s.store != nil {
		all = append(all, s.store.nodes...)
		all = append(all, s.store.others...)
	}
	for _, h := range s.hubs {
		if h.Hub != nil {
			all = append(all, h.Hub)
		}
	}
	for _, one := range s.servers {
		all = append(all, one.Program)
	}
	return append(all, s.agents...)
}

// urls returns the addresses where the clients reach the hubs.
func (s *stage) urls() []string {
	var all []string
	for _, h := range s.hubs {
		all = append(all, "http://"+h.clients.addr())
	}
	return all
}

// stop kills everything.
func (s *stage) stop() {
	for _, p := range slices.Backward(s.programs()) {
		p.Kill()
	}
	for _, p := range s.proxies {
		p.close()
	}
	for _, e := range s.ears {
		e.close()
	}
	s.disk.close()
}

// ready waits until a hub accepts prompts.
func (h *hub) ready(ctx context.Context) error {
	return h.Hub.Await(ctx, "the hub is ready", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		return programs.Get(ctx, "http://"+h.Admin+"/comfyhub/ready", nil)
	})
}
