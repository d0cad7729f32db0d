package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// conventionalPorts are those at which GPU machines usually run ComfyUI: one per
// GPU from 3188 or 3130 on, or ComfyUI's own default.
func conventionalPorts() []int {
	var ports []int
	for gpu := range 8 {
		ports = append(ports, 3188+gpu)
	}
	for gpu := range 8 {
		ports = append(ports, 3130+gpu)
	}
	return append(ports, 8188)
}

// search looks for servers that were not configured, again and again: they may be
// started later. Each is named after its port, which stays the same whatever else
// is found.
func (a *agent) search(ctx context.Context) {
	ports, every := a.ports, a.searchEvery
	if len(ports) == 0 {
		ports = conventionalPorts()
	}
	if every == 0 {
		every = 10 * time.Second
	}
	a.log.Info("no --comfyui given, looking at this machine's usual ports", "ports", strings.Trim(fmt.Sprint(ports), "[]"))
	found := map[int]bool{}
	for ctx.Err() == nil {
		for _, port := range ports {
			if !found[port] && a.try(ctx, port) {
				found[port] = true
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(every):
		}
	}
}

// try adds the server at a loopback port, if there is one.
func (a *agent) try(ctx context.Context, port int) bool {
	t := target{name: fmt.Sprintf("%s-%d", a.name, port), url: fmt.Sprintf("http://127.0.0.1:%d", port)}
	if slices.ContainsFunc(a.config.join, func(hub string) bool { return strings.HasSuffix(hub, fmt.Sprintf(":%d", port)) }) {
		return false
	}
	if err := probe(ctx, t.url); err != nil {
		if errors.Is(err, comfyui.ErrHub) {
			a.log.Debug("found a hub, not a server", "url", t.url)
		}
		return false
	}
	if err := a.add(t); err != nil {
		a.log.Error("found a server that cannot be used", "url", t.url, "error", err)
		return false
	}
	a.log.Info("found a server", "url", t.url, "instance", t.name)
	a.watch(ctx, a.find(t.name))
	return true
}

// probe checks whether a ComfyUI server answers at an address.
func probe(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	client, err := comfyui.NewClient(url, comfyui.Options{DialTimeout: time.Second})
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = client.SystemStats(ctx)
	return err
}
