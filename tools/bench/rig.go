package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/testing/freeport"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

// rig starts what a benchmark compares.
type rig struct {
	ctx  context.Context
	set  programs.Set
	dir  string
	seed uint64
	out  io.Writer
	// comfyui is the URL of a real ComfyUI that benchmarks of trivial prompts use in place of
	// simulated instances; empty for none.
	comfyui string
	// quick makes schedules a fifth as long.
	quick bool
	// length is how long a benchmark of a whole fleet measures.
	length time.Duration

	fleets  []*programs.Fleet
	started []*programs.Program
}

func newRig(ctx context.Context, set programs.Set, dir string, out io.Writer) (*rig, error) {
	return &rig{ctx: ctx, set: set, dir: dir, out: out}, os.MkdirAll(dir, 0o700)
}

// stop stops everything, the last started first.
func (r *rig) stop() {
	for len(r.fleets) > 0 {
		r.fleets[len(r.fleets)-1].Stop()
		r.fleets = r.fleets[:len(r.fleets)-1]
	}
	for len(r.started) > 0 {
		r.started[len(r.started)-1].Stop()
		r.started = r.started[:len(r.started)-1]
	}
}

// say tells people how far a benchmark is.
func (r *rig) say(format string, args ...any) {
	fmt.Fprintf(r.out, filepath.Base(r.dir)+": "+format+"\n", args...)
}

// start starts a program.
func (r *rig) start(name, path string, args ...string) (*programs.Program, error) {
	p, err := programs.Start(programs.Spec{Name: name, Path: path, Args: args, Dir: r.dir})
	if err == nil {
		r.started = append(r.started, p)
	}
	return p, err
}

// instances starts simulated instances in one process. flags are more of those of `simulate`.
func (r *rig) instances(count int, flags ...string) (urls []string, p *programs.Program, err error) {
	first, err := freeport.Addresses(count)
	if err != nil {
		return nil, nil, err
	}
	host, text, err := net.SplitHostPort(first)
	if err != nil {
		return nil, nil, err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, nil, err
	}
	p, err = r.start("instances", r.set.Agent, append([]string{"simulate", "--count", strconv.Itoa(count), "--port", text, "--work-preview", "8"}, flags...)...)
	if err != nil {
		return nil, nil, err
	}
	for n := range count {
		url := "http://" + net.JoinHostPort(host, strconv.Itoa(port+n))
		err = p.Await(r.ctx, "instances answer", func(ctx context.Context) error {
			return programs.Get(ctx, url+"/queue", nil)
		})
		if err != nil {
			return nil, nil, err
		}
		urls = append(urls, url)
	}
	return urls, p, nil
}

// plain is instances for trivial prompts: simulated ones that take no time of their own, or
// the real ComfyUI, which is each of them. p is nil for that one.
func plain(r *rig, count int) (urls []string, p *programs.Program, err error) {
	if r.comfyui == "" {
		return r.instances(count)
	}
	return slices.Repeat([]string{r.comfyui}, count), nil, nil
}

// balance starts Caddy's own reverse proxy in front of instances, with one of its policies.
func (r *rig) balance(urls []string, policy string) (url string, err error) {
	return r.site("proxy", fmt.Sprintf("reverse_proxy %s {\n\t\tlb_policy %s\n\t}", strings.Join(urls, " "), policy), "/queue")
}

// site starts Caddy with directives, and waits until it answers requests for a path.
func (r *rig) site(name, directives, path string) (url string, err error) {
	address, err := freeport.Address()
	if err != nil {
		return "", err
	}
	file := filepath.Join(r.dir, "Caddyfile")
	text := fmt.Sprintf("{\n\tadmin off\n\tpersist_config off\n}\nhttp://%s {\n\tbind %s\n\t%s\n}\n", address, strings.Split(address, ":")[0], directives)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", err
	}
	p, err := r.start(name, r.set.Caddy, "run", "--config", file)
	if err != nil {
		return "", err
	}
	url = "http://" + address
	return url, p.Await(r.ctx, name+" answers", func(ctx context.Context) error {
		return programs.Get(ctx, url+path, nil)
	})
}

// hub is a hub with an agent and, unless its queue is embedded, a redis-server.
type hub struct {
	*programs.Fleet
	agent, redis *programs.Program
}

// fleet starts a hub in front of instances. words are lines for the Caddyfile.
func (r *rig) fleet(name string, urls []string, embedded bool, words ...string) (h *hub, err error) {
	h = &hub{}
	url := "embedded"
	if !embedded {
		var address string
		h.redis, address, err = programs.StartRedis(r.dir, name+"-redis", nil, "save \"\"", "appendonly yes", "appendfsync everysec", "maxmemory-policy noeviction")
		if err != nil {
			return nil, err
		}
		r.started = append(r.started, h.redis)
		url = "redis://" + address
	}
	dir := filepath.Join(r.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if h.Fleet, err = programs.NewFleet(r.set, dir, url); err != nil {
		return nil, err
	}
	h.Env = append(h.Env, "COMFYHUB_TENANT_SECRET="+tenantSecret)
	if len(words) > 0 {
		if h.Set.Caddyfile, err = withWords(h.Set.Caddyfile, dir, words); err != nil {
			return nil, err
		}
	}
	r.fleets = append(r.fleets, h.Fleet)
	if err := h.StartHub(r.ctx); err != nil {
		return nil, err
	}
	if h.agent, err = h.join("agent", urls); err != nil {
		return nil, err
	}
	_, err = h.AwaitIdle(r.ctx, len(urls))
	return h, err
}

// withWords writes a copy of a Caddyfile, with more lines in the block of the hub, into
// a folder.
func withWords(caddyfile, dir string, words []string) (string, error) {
	text, err := os.ReadFile(caddyfile)
	if err != nil {
		return "", err
	}
	const block = "comfyhub {\n"
	before, after, found := strings.Cut(string(text), block)
	if !found {
		return "", fmt.Errorf("%s has no block comfyhub", caddyfile)
	}
	file := filepath.Join(dir, "Caddyfile")
	return file, os.WriteFile(file, []byte(before+block+strings.Join(words, "\n")+"\n"+after), 0o600)
}

// warmUp runs a few prompts: nobody waits for connections and code that is new.
func (r *rig) warmUp(c *client, nonce int) error {
	for n := range warm {
		if _, err := c.post(r.ctx, c.body(0, nonce+n)); err != nil {
			return err
		}
	}
	return c.empty(r.ctx)
}
