package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/freeport"
	"github.com/comfyhub/comfyhub/internal/programs"
)

// machines are simulated GPU machines: an agent each, and instances of their own in a
// process of their own.
type machines struct {
	*hub
	urls []string // of the instances
}

// machines starts a hub and machines with some instances each.
func startMachines(r *rig, count, instances int) (*machines, error) {
	m := &machines{}
	for n := range count {
		urls, _, err := r.instances(instances, 1)
		if err != nil {
			return nil, err
		}
		m.urls = append(m.urls, urls...)
		if n == 0 {
			m.hub, err = r.fleet("hub", urls, false)
		} else {
			_, err = m.join(fmt.Sprint("bench", n), urls)
		}
		if err != nil {
			return nil, err
		}
	}
	_, err := m.AwaitIdle(r.ctx, len(m.urls))
	return m, err
}

// gaps reads from the instances' own histories how long each was without work between
// two prompts, in order of length, and how many there were. Gaps that begin before or
// end after two moments do not count: nothing waited then.
func (m *machines) gaps(r *rig, from, to time.Time) (list []time.Duration, err error) {
	for _, url := range m.urls {
		c := newClient(url, 1)
		began, err := c.began(r.ctx)
		if err != nil {
			return nil, err
		}
		ended, err := c.ended(r.ctx)
		if err != nil {
			return nil, err
		}
		list = append(list, gapsBetween(began, ended, from, to)...)
	}
	return list, nil
}

// join starts another agent.
func (h *hub) join(name string, urls []string) (*programs.Program, error) {
	serve, err := freeport.Address()
	if err != nil {
		return nil, err
	}
	return h.Start(programs.Spec{Name: name, Path: h.Set.Agent, Args: []string{
		"run", "--join", h.Gossip, "--name", name, "--serve", serve, "--comfyui", strings.Join(urls, ","),
	}})
}
