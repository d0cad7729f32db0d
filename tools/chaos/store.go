package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/testing/freeport"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

// The forms of Redis that -redis names.
const (
	single   = "single"   // one server, with a proxy between it and each hub
	sentinel = "sentinel" // a master, a replica and three sentinels
	cluster  = "cluster"  // three masters
)

// store is the Redis of a stage. Only a single server has proxies in front of it:
// the other forms tell clients where their nodes are.
type store struct {
	url  string
	addr string // of the single server
	// nodes are the servers with data, others are sentinels.
	nodes, others []*programs.Program
	ports         []string // of the nodes
	sentinels     []string // their ports
}

// startStore starts a Redis in one of the forms.
func startStore(ctx context.Context, form, dir string) (*store, error) {
	s := &store{}
	switch form {
	case single:
		addr, err := s.node(dir, "redis")
		if err != nil {
			return s, err
		}
		s.addr, s.url = addr, "redis://"+addr
	case sentinel:
		if err := s.startSentinels(ctx, dir); err != nil {
			return s, err
		}
	case cluster:
		if err := s.startCluster(ctx, dir); err != nil {
			return s, err
		}
	default:
		return s, fmt.Errorf("-redis: want %s, %s or %s, not %q", single, sentinel, cluster, form)
	}
	return s, s.await(ctx)
}

// node starts a server that keeps an append-only file, and returns its address.
// Its settings are in a file, because a sentinel rewrites them.
func (s *store) node(dir, name string, settings ...string) (string, error) {
	p, addr, err := programs.StartRedis(dir, name, nil, append([]string{
		"save \"\"", "appendonly yes", "appendfsync everysec", "maxmemory-policy noeviction", "repl-diskless-sync-delay 0",
	}, settings...)...)
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(addr)
	s.nodes, s.ports = append(s.nodes, p), append(s.ports, port)
	return addr, err
}

func (s *store) startSentinels(ctx context.Context, dir string) error {
	master, err := s.node(dir, "redis-1")
	if err != nil {
		return err
	}
	at := strings.ReplaceAll(master, ":", " ")
	if _, err := s.node(dir, "redis-2", "replicaof "+at); err != nil {
		return err
	}
	var hosts []string
	for n := range 3 {
		p, addr, err := programs.StartRedis(dir, fmt.Sprintf("sentinel-%d", n+1), []string{"--sentinel"},
			"sentinel monitor chaos "+at+" 2", "sentinel down-after-milliseconds chaos 2000", "sentinel failover-timeout chaos 5000")
		if err != nil {
			return err
		}
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return err
		}
		s.others, s.sentinels, hosts = append(s.others, p), append(s.sentinels, port), append(hosts, addr)
	}
	s.url = "redis+sentinel://" + strings.Join(hosts, ",") + "/chaos"
	// If a replica without data becomes the master, Redis forgets everything.
	return s.nodes[1].Await(ctx, "the replica has copied the data", func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, "redis-cli", "-p", s.ports[1], "info", "replication").CombinedOutput()
		if err == nil && !strings.Contains(string(out), "master_link_status:up") {
			err = errors.New("not yet")
		}
		return err
	})
}

func (s *store) startCluster(ctx context.Context, dir string) error {
	var hosts []string
	for n := range 3 {
		bus, err := freeport.Address()
		if err != nil {
			return err
		}
		_, port, err := net.SplitHostPort(bus)
		if err != nil {
			return err
		}
		addr, err := s.node(dir, fmt.Sprintf("redis-%d", n+1), "cluster-enabled yes", "cluster-port "+port, "cluster-node-timeout 3000", "cluster-require-full-coverage no")
		if err != nil {
			return err
		}
		hosts = append(hosts, addr)
	}
	s.url = "redis+cluster://" + strings.Join(hosts, ",")
	create := append([]string{"--cluster", "create"}, hosts...)
	return s.nodes[0].Await(ctx, "the cluster is made", func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, "redis-cli", append(create, "--cluster-yes")...).CombinedOutput()
		if err != nil && !strings.Contains(string(out), "is not empty") { // it was made by an earlier call
			return fmt.Errorf("redis-cli: %w: %s", err, out)
		}
		return nil
	})
}

// client opens a connection that bypasses the proxies.
func (s *store) client(ctx context.Context) (*redis.DB, error) {
	return redis.Open(ctx, redis.Options{URL: s.url, Logger: slog.New(slog.DiscardHandler)})
}

// await waits until something can be written.
func (s *store) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	db, err := s.client(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	for {
		// In a cluster this key is on the same node as the jobs.
		err := db.Client().Set(ctx, db.Key("chaos"), "", time.Minute).Err()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// maxmemory limits the memory of every node. A node that already holds more refuses
// every write.
func (s *store) maxmemory(ctx context.Context, limit string) error {
	for _, port := range s.ports {
		if out, err := exec.CommandContext(ctx, "redis-cli", "-p", port, "config", "set", "maxmemory", limit).CombinedOutput(); err != nil {
			return fmt.Errorf("redis-cli: %w: %s", err, out)
		}
	}
	return nil
}

// failOver makes the replica the master.
func (s *store) failOver(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "redis-cli", "-p", s.sentinels[0], "sentinel", "failover", "chaos").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "OK") && !strings.HasPrefix(string(out), "INPROG") && !strings.HasPrefix(string(out), "NOGOODSLAVE") {
		return errors.Join(fmt.Errorf("sentinel failover: %s", out), err)
	}
	return nil
}

// keys returns the keys of all nodes.
func (s *store) keys(ctx context.Context) ([]string, error) {
	var all []string
	for _, port := range s.ports {
		out, err := exec.CommandContext(ctx, "redis-cli", "-p", port, "--scan").Output()
		if err != nil {
			return nil, fmt.Errorf("redis-cli: %w", err)
		}
		all = append(all, strings.Fields(string(out))...)
	}
	return all, nil
}
