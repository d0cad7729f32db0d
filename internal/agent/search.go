package agent

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// conventionalPorts are those at which GPU machines usually run ComfyUI: one per
// GPU from 3188 or 3130 on, or from ComfyUI's own default.
func conventionalPorts() []int {
	var ports []int
	for _, run := range []struct{ first, count int }{{3188, 8}, {3130, 8}, {8188, 12}} {
		for gpu := range run.count {
			ports = append(ports, run.first+gpu)
		}
	}
	return ports
}

// portOf is the port that the command line of a ComfyUI names, its arguments separated by
// NUL; 0 if it is another program's, or names none.
func portOf(command string) int {
	words := strings.Split(command, "\x00")
	if !slices.ContainsFunc(words, func(word string) bool { return path.Base(word) == "main.py" }) {
		return 0
	}
	for n, word := range words {
		value, ok := strings.CutPrefix(word, "--port=")
		if word == "--port" && n+1 < len(words) {
			value, ok = words[n+1], true
		}
		if port, err := strconv.ParseUint(value, 10, 16); ok && err == nil {
			return int(port)
		}
	}
	return 0
}

// search looks for servers that were not configured, again and again: they may be
// started later. Each is named after its port, which stays the same whatever else
// is found.
func (a *agent) search(ctx context.Context) {
	usual, every := a.ports, a.searchEvery
	if len(usual) == 0 {
		usual = conventionalPorts()
	}
	if every == 0 {
		every = 10 * time.Second
	}
	a.log.Info("no --comfyui given, looking at this machine's usual ports", "ports", strings.Trim(fmt.Sprint(usual), "[]"))
	found := map[int]bool{}
	for ctx.Err() == nil {
		for _, port := range append(theProcesses().ports(), usual...) {
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

// try adds the server at a loopback port. It reports whether there is one.
func (a *agent) try(ctx context.Context, port int) bool {
	t := target{name: fmt.Sprintf("%s-%d", a.name, port), url: fmt.Sprintf("http://127.0.0.1:%d", port)}
	if slices.ContainsFunc(a.config.join, func(hub string) bool { return strings.HasSuffix(hub, fmt.Sprintf(":%d", port)) }) {
		return false
	}
	asking, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := comfyui.Probe(asking, t.url); err != nil {
		if errors.Is(err, comfyui.ErrHub) {
			a.log.Debug("found a hub, not an instance", "url", t.url)
		}
		return false
	}
	if err := a.add(t); err != nil {
		a.log.Error("found an instance that cannot be used", "url", t.url, "error", err)
		return true // it would be no other
	}
	a.log.Info("found an instance", "url", t.url, "instance", t.name)
	a.watch(ctx, a.servers.find(t.name))
	return true
}
