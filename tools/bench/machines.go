package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/comfyhub/comfyhub/internal/testing/freeport"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

// machines are simulated GPU machines: an agent each, and instances of their own in a
// process of their own.
type machines struct {
	*hub
	urls []string // of the instances
}

// startMachines starts a hub and machines with some instances each. words are lines for the hub's
// Caddyfile.
func startMachines(r *rig, count, instances int, words ...string) (*machines, error) {
	m := &machines{}
	for n := range count {
		urls, _, err := r.instances(instances)
		if err != nil {
			return nil, err
		}
		m.urls = append(m.urls, urls...)
		if n == 0 {
			m.hub, err = r.fleet("hub", urls, false, words...)
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

// gaps reads from the history how long each instance was without work between two
// prompts, by the instance's own times. Gaps that begin before or end after two moments
// do not count: nothing waited then.
func (m *machines) gaps(r *rig, from, to time.Time) (list []time.Duration, err error) {
	c := newClient(m.URL(""), 8)
	began, err := c.began(r.ctx)
	if err != nil {
		return nil, err
	}
	ended, err := c.ended(r.ctx)
	if err != nil {
		return nil, err
	}
	runs, err := m.runs(r, c, began, ended)
	if err != nil {
		return nil, err
	}
	for _, of := range runs {
		list = append(list, gapsBetween(of, from, to)...)
	}
	return list, nil
}

// runs asks for the instance of each prompt.
func (m *machines) runs(r *rig, c *client, began, ended map[string]time.Time) (map[string][]stretch, error) {
	var (
		mu    sync.Mutex
		runs  = map[string][]stretch{}
		calls errgroup.Group
	)
	calls.SetLimit(8)
	for id, at := range began {
		calls.Go(func() error {
			var job struct{ Instance string }
			err := c.call(r.ctx, http.MethodGet, "/hub/jobs/"+id, nil, &job)
			mu.Lock()
			defer mu.Unlock()
			runs[job.Instance] = append(runs[job.Instance], stretch{at, ended[id]})
			return err
		})
	}
	return runs, calls.Wait()
}

// stretch is when a prompt ran.
type stretch struct{ began, ended time.Time }

// gapsBetween returns the times between the runs of an instance.
func gapsBetween(runs []stretch, from, to time.Time) (gaps []time.Duration) {
	slices.SortFunc(runs, func(a, b stretch) int { return a.began.Compare(b.began) })
	for n := 1; n < len(runs); n++ {
		end, start := runs[n-1].ended, runs[n].began
		if end.After(from) && start.Before(to) {
			gaps = append(gaps, start.Sub(end))
		}
	}
	return gaps
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
