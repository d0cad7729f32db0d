package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

// kind is a kind of fault. strike breaks one target; heal repairs it after the time
// that the schedule gives, and returns when the target works again.
type kind struct {
	name string
	// shortest and longest bound how long the fault lasts.
	shortest, longest time.Duration
	// targets returns how many targets of this kind a stage has. The fault hits one
	// of them at random. A kind without targets is left out.
	targets func(s *stage) int
	// at names the target. Two faults never hit the same one at once.
	at func(n int) string
	// also names a second target that the fault holds, if it is not empty.
	also string
	// downs says that nothing can be submitted through the target meanwhile.
	downs bool
	// drops says that hubs may drop history to go on.
	drops  bool
	strike func(s *stage, n int) error
	heal   func(ctx context.Context, s *stage, n int) error
}

func hubs(s *stage) int    { return len(s.hubs) }
func agents(s *stage) int  { return len(s.agents) }
func servers(s *stage) int { return len(s.servers) }
func tunnels(s *stage) int { return len(s.tunnels) }
func nodes(s *stage) int   { return len(s.store.nodes) }
func one(*stage) int       { return 1 }

// failovers returns 1 if there are sentinels, otherwise 0.
func failovers(s *stage) int { return min(len(s.store.sentinels), 1) }

// links returns how many proxies are in front of a single Redis.
func links(s *stage) int {
	if s.store.addr == "" {
		return 0
	}
	return len(s.hubs)
}

func hubName(n int) string    { return fmt.Sprintf("hub-%d", n+1) }
func agentName(n int) string  { return fmt.Sprintf("agent-%d", n+1) }
func serverName(n int) string { return fmt.Sprintf("instance-%d", n+1) }
func tunnelName(n int) string { return fmt.Sprintf("tunnel-%d", n+1) }

const (
	redisName   = "redis"
	storageName = "storage"
)

func only(name string) func(int) string { return func(int) string { return name } }

// program returns the faults of programs: killed, stopped gracefully, frozen.
func program(name string, targets func(*stage) int, at func(int) string, downs bool, of func(*stage, int) *programs.Program, awake func(context.Context, *stage, int) error) []kind {
	one := func(name string, shortest, longest time.Duration, strike func(*programs.Program), again func(*programs.Program) error) kind {
		return kind{
			name: name, shortest: shortest, longest: longest, targets: targets, at: at, downs: downs,
			strike: func(s *stage, n int) error { strike(of(s, n)); return nil },
			heal: func(ctx context.Context, s *stage, n int) error {
				if err := again(of(s, n)); err != nil {
					return err
				}
				return awake(ctx, s, n)
			},
		}
	}
	resume := func(p *programs.Program) error { p.Resume(); return nil }
	return []kind{
		one("kill-"+name, 0, 6*time.Second, (*programs.Program).Kill, (*programs.Program).Restart),
		one("stop-"+name, 0, 6*time.Second, (*programs.Program).Stop, (*programs.Program).Restart),
		one("freeze-"+name, time.Second, 22*time.Second, (*programs.Program).Pause, resume),
	}
}

// link returns the faults of connections.
func link(name string, targets func(*stage) int, at func(int) string, downs bool, of func(*stage, int) *proxy, awake func(context.Context, *stage, int) error) []kind {
	one := func(name string, shortest, longest time.Duration, strike func(*proxy)) kind {
		return kind{
			name: name, shortest: shortest, longest: longest, targets: targets, at: at, downs: downs,
			strike: func(s *stage, n int) error { strike(of(s, n)); return nil },
			heal: func(ctx context.Context, s *stage, n int) error {
				of(s, n).heal()
				return awake(ctx, s, n)
			},
		}
	}
	return []kind{
		one("cut-"+name, 0, 0, (*proxy).cut),
		one("part-"+name, time.Second, 12*time.Second, (*proxy).part),
		one("hold-"+name, time.Second, 22*time.Second, (*proxy).hold),
		one("slow-"+name, 3*time.Second, 12*time.Second, func(p *proxy) { p.slow(150 * time.Millisecond) }),
		one("mute-"+name, time.Second, 4*time.Second, (*proxy).loseReplies),
	}
}

// kinds returns all kinds of faults.
func kinds() []kind {
	hubReady := func(ctx context.Context, s *stage, n int) error { return s.hubs[n].ready(ctx) }
	nothing := func(context.Context, *stage, int) error { return nil }
	var all []kind
	all = append(all, program("hub", hubs, hubName, true, func(s *stage, n int) *programs.Program { return s.hubs[n].Hub }, hubReady)...)
	all = append(all, program("redis", nodes, only(redisName), true, func(s *stage, n int) *programs.Program { return s.store.nodes[n] },
		func(ctx context.Context, s *stage, _ int) error { return s.store.await(ctx) })...)
	all = append(all, program("agent", agents, agentName, false, func(s *stage, n int) *programs.Program { return s.agents[n] }, nothing)...)
	all = append(all, program("instance", servers, serverName, false, func(s *stage, n int) *programs.Program { return s.servers[n].Program },
		func(ctx context.Context, s *stage, n int) error { return s.servers[n].await(ctx) })...)
	all = append(all, link("clients", hubs, hubName, true, func(s *stage, n int) *proxy { return s.hubs[n].clients }, nothing)...)
	all = append(all, link("store", links, hubName, true, func(s *stage, n int) *proxy { return s.hubs[n].redis }, hubReady)...)
	all = append(all, link("server", servers, serverName, false, func(s *stage, n int) *proxy { return s.servers[n].agent }, nothing)...)
	all = append(all, link("tunnel", tunnels, tunnelName, false, func(s *stage, n int) *proxy { return s.tunnels[n] }, nothing)...)
	all = append(all, earKinds()...)
	all = append(all, lateKinds(hubReady)...)
	all = append(all, diskKinds()...)
	redisReady := func(ctx context.Context, s *stage, _ int) error { return s.store.await(ctx) }
	return append(all,
		kind{
			name: "reload-hub", targets: hubs, at: hubName, downs: true,
			strike: func(s *stage, n int) error { return s.hubs[n].reload() }, heal: hubReady,
		},
		kind{
			name: "failover-redis", shortest: 3 * time.Second, longest: 6 * time.Second, targets: failovers, at: only(redisName), downs: true,
			strike: func(s *stage, _ int) error { return s.store.failOver(context.Background()) }, heal: redisReady,
		},
		kind{
			name: "full-redis", shortest: time.Second, longest: 8 * time.Second, targets: one, at: only(redisName), downs: true, drops: true,
			strike: func(s *stage, _ int) error { return s.store.maxmemory(context.Background(), "1mb") },
			heal:   func(ctx context.Context, s *stage, _ int) error { return s.store.maxmemory(ctx, "0") },
		},
	)
}

// named returns the kinds whose names contain one of the words, all kinds if there
// are no words, and no kinds for the single word none.
func named(words []string) ([]kind, error) {
	switch {
	case len(words) == 0:
		return kinds(), nil
	case len(words) == 1 && words[0] == "none":
		return nil, nil
	}
	var some []kind
	for _, k := range kinds() {
		for _, word := range words {
			if strings.Contains(k.name, word) {
				some = append(some, k)
				break
			}
		}
	}
	if some == nil {
		return nil, fmt.Errorf("no kind of fault is called %s", strings.Join(words, " or "))
	}
	return some, nil
}

// reload has Caddy load the hub's configuration again, as caddy reload does.
func (h *hub) reload() error {
	text, err := os.ReadFile(h.Set.Caddyfile)
	if err != nil {
		return err
	}
	// Caddy replaces the variables in the process that adapts the file.
	for _, v := range []struct{ name, value string }{{"ADMIN", h.Admin}, {"DATA", h.Data}, {"GOSSIP", h.Gossip}} {
		text = []byte(strings.ReplaceAll(string(text), "{$COMFYHUB_"+v.name+"}", v.value))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+h.Admin+"/load", strings.NewReader(string(text)))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "text/caddyfile")
	r.Header.Set("Cache-Control", "must-revalidate") // reloads even if nothing has changed
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("POST /load: %s", response.Status)
	}
	return nil
}
