package programs

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/comfyhub/comfyhub/internal/testing/freeport"
)

// tail is how many lines Tails shows of each log.
const tail = 40

// Fleet is a hub, its agents and whatever else belongs to them, on loopback, each
// a process of its own.
type Fleet struct {
	Set Set
	// Dir is the folder of the logs, and of all data except the hub's.
	Dir string
	// Data is the hub's data folder, by default in Dir.
	Data string
	// Redis is a URL, or "embedded".
	Redis string
	// Addr, Operators, Admin and Gossip are where the hub listens for ComfyUI's API, for
	// its operators, for Caddy's admin API, and for gossip.
	Addr, Operators, Admin, Gossip string
	// Env is added to the environment of each program.
	Env []string
	// Hub is nil before StartHub.
	Hub *Program

	mu      sync.Mutex
	started []*Program
}

// NewFleet chooses free ports and starts nothing. The caller may change the fields
// before it starts something.
func NewFleet(set Set, dir, redis string) (*Fleet, error) {
	f := &Fleet{Set: set, Dir: dir, Data: filepath.Join(dir, "hub"), Redis: redis}
	for _, address := range []*string{&f.Addr, &f.Operators, &f.Admin, &f.Gossip} {
		var err error
		if *address, err = freeport.Address(); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// URL is the URL of a path of the hub's.
func (f *Fleet) URL(path string) string { return "http://" + f.Addr + path }

// admin is the URL of a path of the admin API, which asks for no login.
func (f *Fleet) admin(path string) string { return "http://" + f.Admin + path }

// Start starts a program of the fleet, in the fleet's folder. All programs share
// one environment, to which Spec.Env is added.
func (f *Fleet) Start(spec Spec) (*Program, error) {
	// What the programs keep in a user's home folder stays in the fleet's.
	home := filepath.Join(f.Dir, "home")
	env := []string{
		"COMFYHUB_AGENT_STOP_TIMEOUT=0s", // whoever stops everything does not wait for runs
		"COMFYHUB_ADDR=" + f.Addr, "COMFYHUB_OPERATORS=" + f.Operators, "COMFYHUB_ADMIN=" + f.Admin, "COMFYHUB_GOSSIP=" + f.Gossip,
		"COMFYHUB_REDIS=" + f.Redis, "COMFYHUB_DATA=" + f.Data, "XDG_CONFIG_HOME=" + home, "XDG_DATA_HOME=" + home,
	}
	spec.Dir, spec.Env = f.Dir, slices.Concat(env, f.Env, spec.Env)
	p, err := Start(spec)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.started = append(f.started, p)
	f.mu.Unlock()
	return p, nil
}

// StartHub starts the hub, for the first time or again, and waits until it is
// ready.
func (f *Fleet) StartHub(ctx context.Context) (err error) {
	if f.Hub == nil {
		f.Hub, err = f.Start(Spec{Name: "hub", Path: f.Set.Caddy, Args: []string{"run", "--config", f.Set.Caddyfile}})
	} else {
		err = f.Hub.Restart()
	}
	if err != nil {
		return err
	}
	return f.Hub.Await(ctx, "the hub is ready", func(ctx context.Context) error {
		// Caddy's admin API comes up first, and logs an error for whoever asks it about
		// a hub that does not run yet.
		if err := answers(ctx, f.URL("/queue")); err != nil {
			return err
		}
		return Get(ctx, f.admin("/comfyhub/ready"), nil)
	})
}

// StartAgent starts an agent with count simulated instances at free ports. The
// usual ports would do once only: where instances die, the hub would meet those of
// another fleet there.
func (f *Fleet) StartAgent(name string, count int, flags ...string) (*Program, error) {
	instances, err := freeport.Addresses(count)
	if err != nil {
		return nil, err
	}
	serve, err := freeport.Address()
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(instances)
	if err != nil {
		return nil, err
	}
	return f.Start(Spec{Name: name, Path: f.Set.Agent, Args: append([]string{
		"run", "--join", f.Gossip, "--name", name, "--simulate", strconv.Itoa(count), "--port", port, "--serve", serve,
	}, flags...)})
}

// AwaitIdle waits until exactly count instances can take a job, and returns their
// names.
func (f *Fleet) AwaitIdle(ctx context.Context, count int) ([]string, error) {
	var idle []string
	err := f.Hub.Await(ctx, fmt.Sprintf("%d instances are idle", count), func(ctx context.Context) error {
		var all []struct{ Name, State string }
		if err := Get(ctx, f.admin("/comfyhub/instances"), &all); err != nil {
			return err
		}
		idle = idle[:0]
		for _, i := range all {
			if i.State == "idle" {
				idle = append(idle, i.Name)
			}
		}
		if len(idle) != count {
			return fmt.Errorf("%d instances are idle", len(idle))
		}
		return nil
	})
	return idle, err
}

// programs are those of this fleet, in the order of their start.
func (f *Fleet) programs() []*Program {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.started)
}

// Stop stops all programs, the last one first, so that an agent can still tell the
// hub that it leaves.
func (f *Fleet) Stop() {
	for _, p := range slices.Backward(f.programs()) {
		p.Stop()
	}
}

// Kill kills all programs.
func (f *Fleet) Kill() {
	for _, p := range f.programs() {
		p.Kill()
	}
}

// Logs are the logs of all programs.
func (f *Fleet) Logs() string { return f.logs(func(text string) string { return text }) }

// Tails are the last lines of each log.
func (f *Fleet) Tails() string {
	return f.logs(func(text string) string {
		lines := strings.SplitAfter(text, "\n")
		return strings.Join(lines[max(0, len(lines)-tail):], "")
	})
}

func (f *Fleet) logs(part func(string) string) string {
	var b strings.Builder
	shown := map[string]bool{}
	for _, p := range f.programs() {
		if file := p.LogFile(); !shown[file] {
			shown[file] = true
			fmt.Fprintf(&b, "--- %s\n%s\n", file, part(p.Log()))
		}
	}
	return b.String()
}
