package main

import (
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/comfyhub/comfyhub/internal/testing/figure"
)

const (
	// What a large hub holds at once: prompts that wait, for a model that only one busy instance has,
	// of so many tenants, and sockets.
	crowdedWaiting = 10_000
	crowdedTenants = 1_000
	crowdedSockets = 1_000
	// crowdedIdle is how long it is looked at without anybody doing anything, and crowdedPrompts how
	// many more prompts run then.
	crowdedIdle    = 20 * time.Second
	crowdedPrompts = 300
)

// crowded measures what a full hub costs while nothing happens, and compares the processor time of one
// more prompt with that in the same fleet when nobody waits and nobody is connected.
func crowded(r *rig) ([]figure.Figure, error) {
	m, err := startMachines(r, fleetMachines, fleetInstances, "max_queue 20000")
	if err != nil {
		return nil, err
	}
	rare, _, err := r.instances(1, "--model", "checkpoints/"+rareModel)
	if err != nil {
		return nil, err
	}
	if _, err := m.join("rare", rare); err != nil {
		return nil, err
	}
	if _, err := m.AwaitIdle(r.ctx, len(m.urls)+1); err != nil {
		return nil, err
	}
	c := newClient(m.URL(""), 50)
	nonce := 0
	alone, err := r.perPrompt(m, c, &nonce)
	if err != nil {
		return nil, err
	}
	if err := r.fill(m); err != nil {
		return nil, err
	}
	for n := range crowdedSockets {
		socket, err := newClient(m.URL(""), 1).listen(r.ctx)
		if err != nil {
			return nil, fmt.Errorf("socket %d: %w", n, err)
		}
		defer socket.CloseNow()
		go func() {
			for {
				if _, _, err := socket.Read(r.ctx); err != nil {
					return
				}
			}
		}()
	}
	if err := pause(r.ctx, settled); err != nil {
		return nil, err
	}
	before := m.Hub.CPU()
	if err := pause(r.ctx, crowdedIdle); err != nil {
		return nil, err
	}
	idle := (m.Hub.CPU() - before).Seconds() / crowdedIdle.Seconds()
	beside, err := r.perPrompt(m, c, &nonce)
	if err != nil {
		return nil, err
	}
	memory, _ := m.Hub.Memory()
	holds := fmt.Sprintf("%d prompts of %d tenants wait, %d sockets, %d instances", crowdedWaiting, crowdedTenants, crowdedSockets, len(m.urls)+1)
	return []figure.Figure{
		{Name: "crowded-idle", Value: 100 * idle, Unit: "percent", Goal: 2, Lower: true, Beside: fmt.Sprintf("of a core, while nothing happens; %s; the hub holds %d MB", holds, memory/1e6)},
		{
			Name: "crowded", Value: beside.Seconds() / alone.Seconds(), Unit: "ratio", Goal: 1.3, Lower: true,
			Beside: fmt.Sprintf("processor time of the hub for one more prompt: %.1f ms, and %.1f ms while nobody waits and nobody is connected", ms(beside), ms(alone)),
		},
	}, nil
}

// rareModel is the checkpoint that one instance has.
const rareModel = "rare.safetensors"

// perPrompt is the processor time of the hub for a trivial prompt, one at a time.
func (r *rig) perPrompt(m *machines, c *client, nonce *int) (time.Duration, error) {
	if _, err := r.oneByOne(c, warm, nonce); err != nil {
		return 0, err
	}
	before := m.Hub.CPU()
	_, err := r.oneByOne(c, crowdedPrompts, nonce)
	return (m.Hub.CPU() - before) / crowdedPrompts, err
}

// fill makes prompts of many tenants wait.
func (r *rig) fill(m *machines) error {
	var posts errgroup.Group
	posts.SetLimit(20)
	for tenant := range crowdedTenants {
		posts.Go(func() error {
			c := newClient(m.URL(""), 1)
			c.tenant = fmt.Sprint("tenant", tenant)
			defer c.http.CloseIdleConnections()
			for n := range crowdedWaiting / crowdedTenants {
				nonce := 1_000_000 + tenant*100 + n
				work := node("SimulatedWork", map[string]any{"image": []any{"4", 0}, "seconds": 3600, "steps": 36, "nonce": nonce})
				body := bodyOfGraph(c.id, map[string]any{
					"1": node("CheckpointLoaderSimple", map[string]any{"ckpt_name": rareModel}),
					"3": node("EmptyLatentImage", map[string]any{"width": 64, "height": 64, "batch_size": 1}),
					"4": node("VAEDecode", map[string]any{"samples": []any{"3", 0}, "vae": []any{"1", 2}}),
					"5": work,
					"6": node("SaveImage", map[string]any{"images": []any{"5", 0}, "filename_prefix": "bench"}),
				})
				if _, err := c.post(r.ctx, body); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return posts.Wait()
}
