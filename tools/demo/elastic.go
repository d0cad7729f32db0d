package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

const (
	// tellFlag makes this program the provider that the hub calls.
	tellFlag = "--tell"
	// elasticJobs are posted at once, elasticMost machines run them.
	elasticJobs, elasticMost = 8, 3
	// goneWithin is how long the machines have to go.
	goneWithin = 5 * time.Minute
)

// change is what the hub says, see docs/scaling.md.
type change struct {
	Sequence int64    `json:"sequence"`
	Wanted   int      `json:"wanted"`
	Remove   []string `json:"remove"`
	Reason   string   `json:"reason"`
}

// machines are simulated ones that come and go as the hub wants. It calls this program, which tells
// the one that runs the demonstration: what that has started ends with it.
type machines struct {
	fleet *programs.Fleet

	mu      sync.Mutex
	last    int64
	number  int
	running map[string]*programs.Program
}

// elastic makes the hub of a fleet call this program.
func elastic(ctx context.Context, f *programs.Fleet) (*machines, error) {
	m := &machines{fleet: f, running: map[string]*programs.Program{}}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	web := &http.Server{Handler: m, ReadHeaderTimeout: time.Minute}
	go func() { _ = web.Serve(l) }()
	context.AfterFunc(ctx, func() { _ = web.Close() })
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(f.Set.Caddyfile)
	if err != nil {
		return nil, err
	}
	const option = "\n\tcomfyhub {\n"
	words := fmt.Sprintf("\t\tscale demo {\n\t\t\tmax %d\n\t\t\tidle_after 10s\n\t\t\tprovider exec %q %s http://%s\n\t\t}\n", elasticMost, self, tellFlag, l.Addr())
	before, after, ok := strings.Cut(string(text), option)
	if !ok {
		return nil, fmt.Errorf("%s has no option comfyhub", f.Set.Caddyfile)
	}
	f.Set.Caddyfile = filepath.Join(f.Dir, "Caddyfile")
	return m, os.WriteFile(f.Set.Caddyfile, []byte(before+option+words+after), 0o600)
}

// tell passes on what the hub says to the program that runs the demonstration.
func tell(ctx context.Context, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, os.Stdin)
	if err != nil {
		return err
	}
	_, err = do(r)
	return err
}

func (m *machines) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var c change
	err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&c)
	if err == nil {
		err = m.set(c)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// set makes there be as many machines as the hub wants.
func (m *machines) set(c change) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.Sequence < m.last {
		return nil
	}
	m.last = c.Sequence
	say("scale", "the hub wants %d machines: %s", c.Wanted, c.Reason)
	for name, p := range m.running {
		if slices.Contains(c.Remove, name) {
			say("machine", "%s goes", name)
			p.Stop()
			delete(m.running, name)
		}
	}
	for len(m.running) < c.Wanted {
		m.number++
		name := fmt.Sprintf("demo-%d", m.number)
		p, err := m.fleet.StartAgent(name, 1)
		if err != nil {
			return err
		}
		say("machine", "%s starts", name)
		m.running[name] = p
	}
	return nil
}

// burst posts the workflow several times, as many clients would.
func burst(ctx context.Context, hub string) error {
	say("burst", "%d prompts", elasticJobs)
	for n := range elasticJobs {
		if _, err := post(ctx, hub, fmt.Sprint("burst-", n), workflow); err != nil {
			return err
		}
	}
	return nil
}

// gone waits until all machines are gone.
func (m *machines) gone(ctx context.Context) error {
	say("scale", "waiting until the machines have nothing to do and go")
	ctx, cancel := context.WithTimeoutCause(ctx, goneWithin, fmt.Errorf("the machines are still there after %v", goneWithin))
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		m.mu.Lock()
		left := len(m.running)
		m.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
