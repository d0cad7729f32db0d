package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// fleet is a hub and an agent with simulated instances on this machine.
type fleet struct {
	addr, gossip, admin string // host:port
	dir                 string // the hub's data and everybody's logs
	running             []*process
	ended               chan *process // a program that ended by itself
}

// instance is an entry of GET /hub/instances.
type instance struct {
	Name  string `json:"name"`
	State string `json:"state"`
}

// newFleet chooses ports and makes an empty data folder. The folder is named
// after the hub's port, which nobody else has.
func newFleet() (*fleet, error) {
	f := &fleet{ended: make(chan *process, 2)}
	var err error
	for _, port := range []struct {
		address *string
		what    string
		wanted  int
		udp     bool
	}{
		{&f.addr, "ComfyUI's API", 8188, false},
		{&f.admin, "Caddy's admin endpoint", 2019, false},
		{&f.gossip, "gossip", 7946, true},
	} {
		if *port.address, err = pickPort(port.what, port.wanted, port.udp); err != nil {
			return nil, err
		}
	}
	_, port, err := net.SplitHostPort(f.addr)
	if err != nil {
		return nil, err
	}
	f.dir = filepath.Join("data", "demo", port)
	if err := os.RemoveAll(f.dir); err != nil {
		return nil, err
	}
	return f, os.MkdirAll(f.dir, 0o755)
}

func (f *fleet) hubURL() string { return "http://" + f.addr }

// start runs the programs. They may start in any order and find each other.
func (f *fleet) start() error {
	home := filepath.Join(f.dir, "caddy")
	hub := []string{
		"COMFYHUB_ADDR=" + f.addr,
		"COMFYHUB_ADMIN=" + f.admin,
		"COMFYHUB_GOSSIP=" + f.gossip,
		"COMFYHUB_REDIS=embedded",
		"COMFYHUB_DATA=" + filepath.Join(f.dir, "hub"),
		// Caddy keeps notes of its own; the demo leaves none outside its folder.
		"XDG_DATA_HOME=" + home, "XDG_CONFIG_HOME=" + home,
	}
	if err := f.run("hub", hub, "./caddy", "run", "--config", "Caddyfile"); err != nil {
		return err
	}
	return f.run("agent", nil, "bin/agent", "run", "--join", f.gossip, "--name", "demo", "--simulate", strconv.Itoa(instances), "--preview-method", "auto")
}

// run starts one program with its log in the fleet's folder. The settings of
// a real hub or agent on this machine do not reach it.
func (f *fleet) run(name string, env []string, program string, args ...string) error {
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "COMFYHUB_") {
			env = append([]string{variable}, env...)
		}
	}
	p, err := start(name, filepath.Join(f.dir, name+".log"), env, program, args...)
	if err != nil {
		return err
	}
	f.running = append(f.running, p)
	go func() {
		<-p.done
		f.ended <- p
	}()
	return nil
}

// stop ends the programs, the last one first: the agent then still finds the
// hub to say goodbye to.
func (f *fleet) stop() {
	for _, p := range slices.Backward(f.running) {
		p.stop()
	}
}

// awaitInstances waits until the hub is ready and knows n idle instances.
func (f *fleet) awaitInstances(ctx context.Context, n int) ([]instance, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var trouble error
	for {
		found, err := f.idle(ctx)
		switch {
		case err == nil && len(found) >= n:
			return found, nil
		case err == nil:
			trouble = fmt.Errorf("%d of %d instances are idle", len(found), n)
		case ctx.Err() == nil:
			trouble = err
		}
		select {
		case p := <-f.ended:
			return nil, fmt.Errorf("%s ended before the fleet was ready", p.name)
		case <-tick.C:
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, ctx.Err()
			}
			return nil, fmt.Errorf("the fleet is not ready after %v: %w", readyTimeout, trouble)
		}
	}
}

// idle are the idle instances of a hub that is ready.
func (f *fleet) idle(ctx context.Context) ([]instance, error) {
	if _, err := get(ctx, "http://"+f.admin+"/comfyhub/ready"); err != nil {
		return nil, err
	}
	body, err := get(ctx, f.hubURL()+"/hub/instances")
	if err != nil {
		return nil, err
	}
	var all, idle []instance
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, err
	}
	for _, i := range all {
		if i.State == "idle" {
			idle = append(idle, i)
		}
	}
	return idle, nil
}

// printLogs shows the end of each program's log.
func (f *fleet) printLogs(w io.Writer) {
	const last = 20
	for _, p := range f.running {
		text, err := os.ReadFile(p.log)
		if err != nil || len(text) == 0 {
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		fmt.Fprintf(w, "\n--- the end of %s\n%s\n", p.log, strings.Join(lines[max(0, len(lines)-last):], "\n"))
	}
}

// get returns the body of a 200.
func get(ctx context.Context, url string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return do(r)
}

// do sends a request and returns the body of a 200.
func do(r *http.Request) ([]byte, error) {
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %s: %.500s", r.Method, r.URL, response.Status, body)
	}
	return body, nil
}
