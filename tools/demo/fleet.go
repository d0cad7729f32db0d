package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

// newFleet chooses ports for a hub and an agent, and makes an empty folder for
// data and logs. The folder is named after the hub's port, which nobody else has.
func newFleet() (*programs.Fleet, error) {
	var api, admin, gossip string
	for _, port := range []struct {
		address *string
		what    string
		wanted  int
		udp     bool
	}{
		{&api, "ComfyUI's API", 8188, false},
		{&admin, "Caddy's admin endpoint", 2019, false},
		{&gossip, "gossip", 7946, true},
	} {
		var err error
		if *port.address, err = pickPort(port.what, port.wanted, port.udp); err != nil {
			return nil, err
		}
	}
	_, port, err := net.SplitHostPort(api)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join("data", "demo", port)
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := programs.NewFleet(programs.Made(), dir, "embedded")
	if err != nil {
		return nil, err
	}
	f.Addr, f.Admin, f.Gossip = api, admin, gossip
	return f, nil
}

// start starts the programs, and returns the names of the instances when all can
// take a job. failed is told of a program that ends by itself.
func start(ctx context.Context, f *programs.Fleet, failed func(error)) (names []string, err error) {
	if err := startHub(ctx, f, failed); err != nil {
		return nil, err
	}
	// At the usual ports, unlike the agents of tests.
	agent, err := f.Start(programs.Spec{Name: "agent", Path: f.Set.Agent, Args: []string{
		"run", "--join", f.Gossip, "--name", "demo", "--simulate", strconv.Itoa(instances), "--preview-method", "auto",
	}})
	if err != nil {
		return nil, err
	}
	go watch(agent, failed)
	return f.AwaitIdle(ctx, instances)
}

func startHub(ctx context.Context, f *programs.Fleet, failed func(error)) error {
	if err := f.StartHub(ctx); err != nil {
		return err
	}
	go watch(f.Hub, failed)
	return nil
}

// watch tells of a program that ends by itself.
func watch(p *programs.Program, failed func(error)) {
	<-p.Ended()
	failed(fmt.Errorf("the %s has ended by itself", p.Name()))
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
