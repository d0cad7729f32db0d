package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/comfyhub/comfyhub/internal/testing/figure"
)

const (
	// idleSockets is how many clients are connected. One in ten of them reads or
	// does not; as many readers are measured.
	idleSockets = 5000
	oneInTen    = idleSockets / 10
	// crowdRunners is how many instances run their prompts.
	crowdRunners = 4
	// settled is how long the hub's memory is left alone before it is read.
	settled = 5 * time.Second
)

// sockets measures what an idle client costs the hub, and whether clients that do not
// read delay the others.
func sockets(r *rig) ([]figure.Figure, error) {
	var (
		each int64
		p99  [2]time.Duration
	)
	for side, reads := range []bool{true, false} {
		urls, _, err := r.instances(crowdRunners)
		if err != nil {
			return nil, err
		}
		h, err := r.fleet(fmt.Sprintf("hub%d", side), urls, false)
		if err != nil {
			return nil, err
		}
		c := &crowd{r: r, url: h.URL("")}
		before, _ := h.Hub.Memory()
		if err := c.connect(idleSockets, reads); err != nil {
			return nil, err
		}
		if reads {
			if err := pause(r.ctx, settled); err != nil {
				return nil, err
			}
			after, _ := h.Hub.Memory()
			each = (after - before) / idleSockets
		}
		delays, err := c.delays()
		if err != nil {
			return nil, err
		}
		_, p99[side] = quantiles(delays)
		c.close()
		r.stop()
	}
	return []figure.Figure{
		{Name: "sockets", Value: float64(each) / 1e3, Unit: "kB", Goal: 40, Lower: true},
		{
			Name: "sockets-deaf", Value: p99[1].Seconds() / p99[0].Seconds(), Unit: "ratio", Goal: 2, Lower: true,
			Beside: fmt.Sprintf("p99 from the end at the instance to the client: %.1f ms with clients that do not read, %.1f ms without", ms(p99[1]), ms(p99[0])),
		},
	}, nil
}

// crowd is many connected clients. The first oneInTen of them may be such as do not
// read, the next oneInTen are measured.
type crowd struct {
	r       *rig
	url     string
	clients []*client
	sockets []*websocket.Conn

	mu     sync.Mutex
	ends   map[string]time.Duration // by prompt: what its end took to arrive
	failed error
	all    sync.WaitGroup
}

// connect opens sockets, some at a time.
func (c *crowd) connect(count int, allRead bool) error {
	const atOnce = 50
	c.clients, c.sockets = make([]*client, count), make([]*websocket.Conn, count)
	c.ends = map[string]time.Duration{}
	for first := 0; first < count; first += atOnce {
		var dials sync.WaitGroup
		for n := first; n < min(first+atOnce, count); n++ {
			dials.Go(func() {
				c.clients[n] = newClient(c.url, 1)
				socket, err := c.clients[n].listen(c.r.ctx)
				c.sockets[n] = socket
				c.fail(err)
			})
		}
		dials.Wait()
		if c.failed != nil {
			return c.failed
		}
	}
	for n, socket := range c.sockets {
		if n >= oneInTen || allRead {
			c.all.Go(func() { c.read(socket) })
		}
	}
	return nil
}

// read notes when the end of a prompt arrives, until the socket is closed.
func (c *crowd) read(socket *websocket.Conn) {
	for {
		kind, frame, err := socket.Read(c.r.ctx)
		if err != nil {
			return
		}
		var m struct {
			Type string
			Data struct {
				ID        string `json:"prompt_id"`
				Timestamp int64
			}
		}
		if kind == websocket.MessageText && json.Unmarshal(frame, &m) == nil && m.Type == "execution_success" {
			c.mu.Lock()
			c.ends[m.Data.ID] = max(time.Since(time.UnixMilli(m.Data.Timestamp)), 0)
			c.mu.Unlock()
		}
	}
}

// delays lets the clients of both tenths post a prompt and returns how long the ends
// took to reach those that are measured.
func (c *crowd) delays() ([]time.Duration, error) {
	var measured []string
	for n, client := range c.clients[:2*oneInTen] {
		id, err := client.post(c.r.ctx, client.body(0.01, n))
		if err != nil {
			return nil, err
		}
		if n >= oneInTen {
			measured = append(measured, id)
		}
	}
	ctx, cancel := context.WithTimeout(c.r.ctx, 5*time.Minute)
	defer cancel()
	for {
		if list, ok := c.arrived(measured); ok {
			return list, nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return nil, fmt.Errorf("waiting for the ends of %d prompts: %w", len(measured), err)
		}
	}
}

// arrived returns the delays of some prompts if all of them have ended.
func (c *crowd) arrived(ids []string) (list []time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		took, ok := c.ends[id]
		if !ok {
			return nil, false
		}
		list = append(list, took)
	}
	return list, true
}

func (c *crowd) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && c.failed == nil {
		c.failed = err
	}
}

// close closes all sockets.
func (c *crowd) close() {
	for _, socket := range c.sockets {
		_ = socket.CloseNow()
	}
	c.all.Wait()
}

// pause waits.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
