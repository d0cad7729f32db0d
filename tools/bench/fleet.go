package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sync/errgroup"

	"github.com/comfyhub/comfyhub/internal/testing/figure"
)

const (
	// The fleet of the benchmark: 500 instances, and four clients for each.
	fleetMachines, fleetInstances = 10, 50
	fleetClients                  = 2000
	// A prompt of the fleet takes between these, in seconds. Each step is a message and a
	// picture; the instances' part in them is what this machine is slowest at.
	fleetShortest, fleetLongest = 20.0, 40.0
	fleetSteps                  = 8
	// The burst: all instances end at once.
	burstMachines, burstInstances = 30, 4
	// burstTakes is how long the first prompts take, and burstNext those behind them.
	burstTakes, burstNext = 15 * time.Second, 5.0
)

// fleet measures how long the instances of a large fleet stand without work between two
// prompts while more wait, and what that costs the hub.
func fleet(r *rig) ([]figure.Figure, error) {
	m, err := startMachines(r, fleetMachines, fleetInstances)
	if err != nil {
		return nil, err
	}
	d := &demand{m: m, random: rand.New(rand.NewPCG(r.seed, 12))}
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	if err := d.connect(ctx, fleetClients); err != nil {
		return nil, err
	}
	r.say("%d clients are connected to %d instances", fleetClients, len(m.urls))
	// All instances begin at once, and have drifted apart after two prompts.
	if err := pause(ctx, 2*fleetLongest*time.Second); err != nil {
		return nil, err
	}
	from, cpu, redis := time.Now(), m.Hub.CPU(), m.redis.CPU()
	if err := pause(ctx, r.length); err != nil {
		return nil, err
	}
	to, cpu, redis := time.Now(), m.Hub.CPU()-cpu, m.redis.CPU()-redis
	cancel()
	d.all.Wait()
	memory, _ := m.Hub.Memory()
	gaps, err := m.gaps(r, from, to)
	switch {
	case d.failed != nil:
		return nil, d.failed
	case err != nil:
		return nil, err
	case len(gaps) == 0:
		return nil, fmt.Errorf("no instance ran two prompts in %v", r.length)
	}
	p50, p99 := quantiles(gaps)
	cores := cpu.Seconds() / to.Sub(from).Seconds()
	return []figure.Figure{
		{
			Name: "fleet", Value: ms(p50), Unit: "ms", Goal: 5, Lower: true,
			Beside: fmt.Sprintf("p50 of the time between two runs of an instance, in %v with %d instances and %d clients: %d times",
				r.length, len(m.urls), fleetClients, len(gaps)),
		},
		{Name: "fleet-p99", Value: ms(p99), Unit: "ms", Goal: 50, Lower: true, Beside: fmt.Sprintf("the longest: %.1f ms", ms(slices.Max(gaps)))},
		{
			Name: "fleet-cpu", Value: cores, Unit: "cores", Goal: 1, Lower: true,
			Beside: fmt.Sprintf("Redis %.2f cores; the hub holds %d MB", redis.Seconds()/to.Sub(from).Seconds(), memory/1e6),
		},
	}, nil
}

// demand is clients that each post a prompt, wait for its end and post the next.
type demand struct {
	m *machines

	mu     sync.Mutex
	random *rand.Rand
	nonce  int
	failed error
	all    sync.WaitGroup
}

// connect opens the clients' sockets, some at a time, and lets each post its first prompt.
func (d *demand) connect(ctx context.Context, count int) error {
	var dials errgroup.Group
	dials.SetLimit(50)
	for range count {
		dials.Go(func() error {
			c := newClient(d.m.URL(""), 1)
			socket, err := c.listen(ctx)
			if err == nil {
				d.all.Go(func() { d.play(ctx, c, socket) })
			}
			return err
		})
	}
	return dials.Wait()
}

// play posts prompts and waits for their ends.
func (d *demand) play(ctx context.Context, c *client, socket *websocket.Conn) {
	defer socket.CloseNow()
	for {
		id, err := c.post(ctx, d.next(c))
		if err == nil {
			err = succeeded(ctx, socket, id)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			d.fail(err)
			return
		}
	}
}

// next makes the next prompt of a client.
func (d *demand) next(c *client) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nonce++
	takes := fleetShortest + d.random.Float64()*(fleetLongest-fleetShortest)
	return bodyInSteps(c.id, takes, fleetSteps, d.nonce)
}

func (d *demand) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed == nil {
		d.failed = err
	}
}

// simultaneous measures how long it takes until all instances of a fleet have their next
// prompts when they end at the same moment.
func simultaneous(r *rig) ([]figure.Figure, error) {
	m, err := startMachines(r, burstMachines, burstInstances)
	if err != nil {
		return nil, err
	}
	c := newClient(m.URL(""), 50)
	if err := r.warmUp(c, 1e6); err != nil {
		return nil, err
	}
	end := time.Now().Add(burstTakes)
	for wave := range 2 {
		var posts errgroup.Group
		posts.SetLimit(20)
		for n := range m.urls {
			posts.Go(func() error {
				seconds := burstNext
				if wave == 0 {
					seconds = time.Until(end).Seconds()
				}
				_, err := c.post(r.ctx, body(fmt.Sprint(c.id, wave, n), seconds, wave*len(m.urls)+n))
				return err
			})
		}
		if err := posts.Wait(); err != nil {
			return nil, err
		}
	}
	if late := time.Since(end); late > 0 {
		return nil, fmt.Errorf("the machine is too slow: posting took %v longer than the first prompts", late)
	}
	if err := c.empty(r.ctx); err != nil {
		return nil, err
	}
	gaps, err := m.gaps(r, end.Add(-burstTakes/2), end.Add(burstTakes))
	if err != nil {
		return nil, err
	}
	if len(gaps) != len(m.urls) {
		return nil, fmt.Errorf("%d of %d instances ran two prompts", len(gaps), len(m.urls))
	}
	p50, p99 := quantiles(gaps)
	return []figure.Figure{{
		Name: "burst", Value: ms(p50), Unit: "ms", Goal: 50, Lower: true,
		Beside: fmt.Sprintf("p50 of the time between two runs when %d instances of %d agents end at once; p99 %.0f ms, the longest %.0f ms",
			len(m.urls), burstMachines, ms(p99), ms(slices.Max(gaps))),
	}}, nil
}
