package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/testing/figure"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

const (
	// warm is how many prompts run before anything is measured.
	warm = 20
	// rounds and each divide the prompts of latency: the two sides take turns, so
	// that whatever else the machine does meets both.
	rounds, each = 10, 20
	// waiting is how many prompts wait at the start of gap.
	waiting = 300
)

// latency compares the time from POST /prompt to execution_success, one prompt at a
// time.
func latency(r *rig) ([]figure.Figure, error) {
	urls, _, err := plain(r, 2)
	if err != nil {
		return nil, err
	}
	h, err := r.fleet("hub", urls[1:], false)
	if err != nil {
		return nil, err
	}
	direct, through := newClient(urls[0], 1), newClient(h.URL(""), 1)
	took := map[*client][]time.Duration{}
	nonce := 0
	for round := range rounds + 1 {
		for _, c := range []*client{direct, through} {
			list, err := r.oneByOne(c, each, &nonce)
			if err != nil {
				return nil, err
			}
			if round > 0 { // the first one warms up
				took[c] = append(took[c], list...)
			}
		}
	}
	d50, d99 := quantiles(took[direct])
	h50, h99 := quantiles(took[through])
	return []figure.Figure{{
		Name: "latency", Value: h50.Seconds() / d50.Seconds(), Unit: "ratio", Goal: 1.5, Lower: true,
		Beside: fmt.Sprintf("p50 %.1f ms through the hub, %.1f ms direct; p99 %.1f and %.1f ms", ms(h50), ms(d50), ms(h99), ms(d99)),
	}}, nil
}

// oneByOne posts prompts and waits for the end of each.
func (r *rig) oneByOne(c *client, count int, nonce *int) ([]time.Duration, error) {
	socket, err := c.listen(r.ctx)
	if err != nil {
		return nil, err
	}
	defer socket.CloseNow()
	list := make([]time.Duration, count)
	for n := range list {
		*nonce++
		body := c.body(0, *nonce)
		begin := time.Now()
		id, err := c.post(r.ctx, body)
		if err != nil {
			return nil, err
		}
		if err := succeeded(r.ctx, socket, id); err != nil {
			return nil, err
		}
		list[n] = time.Since(begin)
	}
	return list, nil
}

// quantiles returns the median and the 99th percentile.
func quantiles(list []time.Duration) (p50, p99 time.Duration) {
	slices.Sort(list)
	return list[len(list)/2], list[len(list)*99/100]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// burst is what a queue of trivial prompts took.
type burst struct {
	rate float64 // prompts a second
	// hub, agent, redis and instance are processor times for each prompt.
	hub, agent, redis, instance time.Duration
}

// burst posts a long prompt, trivial ones behind it, and measures how fast these are
// worked off. Without a hub they are posted to an instance.
func (r *rig) burst(name string, withHub bool, words ...string) (b burst, err error) {
	urls, instance, err := plain(r, 1)
	if err != nil {
		return b, err
	}
	c := newClient(urls[0], 1)
	var h *hub
	if withHub {
		if h, err = r.fleet(name, urls, false, words...); err != nil {
			return b, err
		}
		c = newClient(h.URL(""), 1)
	}
	nonce := 0
	if _, err := r.oneByOne(c, warm, &nonce); err != nil {
		return b, err
	}
	// Nothing is measured before all prompts wait.
	const ahead = 3 // seconds
	long := c.body(ahead, nonce+1)
	if r.comfyui != "" {
		long = c.bodyOfSize(6000, nonce+1)
	}
	first, err := c.post(r.ctx, long)
	if err != nil {
		return b, err
	}
	socket, err := c.listen(r.ctx)
	if err != nil {
		return b, err
	}
	defer socket.CloseNow()
	last := ""
	for n := range waiting {
		if last, err = c.post(r.ctx, c.body(0, nonce+2+n)); err != nil {
			return b, err
		}
	}
	if err := succeeded(r.ctx, socket, first); err != nil {
		return b, err
	}
	begin, before := time.Now(), r.times(h, instance)
	if err := succeeded(r.ctx, socket, last); err != nil {
		return b, err
	}
	took, after := time.Since(begin), r.times(h, instance)
	for n, part := range []*time.Duration{&b.instance, &b.hub, &b.agent, &b.redis} {
		*part = (after[n] - before[n]) / waiting
	}
	b.rate = waiting / took.Seconds()
	r.stop()
	return b, nil
}

// times are the processor times of an instance, where it is simulated, and of a hub's programs.
func (r *rig) times(h *hub, instance *programs.Program) [4]time.Duration {
	var t [4]time.Duration
	if instance != nil {
		t[0] = instance.CPU()
	}
	if h != nil {
		t[1], t[2], t[3] = h.Hub.CPU(), h.agent.CPU(), h.redis.CPU()
	}
	return t
}

// gap compares how fast an instance works off trivial prompts.
func gap(r *rig) ([]figure.Figure, error) {
	direct, err := r.burst("", false)
	if err != nil {
		return nil, err
	}
	var figures []figure.Figure
	for _, f := range []figure.Figure{{Name: "gap", Goal: 0.8}, {Name: "gap-lookahead", Goal: 0.95}} {
		var words []string
		if f.Name == "gap-lookahead" {
			words = []string{"lookahead 1"}
		}
		through, err := r.burst(f.Name, true, words...)
		if err != nil {
			return nil, err
		}
		f.Value, f.Unit = through.rate/direct.rate, "ratio"
		f.Beside = fmt.Sprintf("%.0f prompts/s through the hub, %.0f direct", through.rate, direct.rate)
		figures = append(figures, f)
	}
	return figures, nil
}

// processor measures the processor time of a trivial prompt.
func processor(r *rig) ([]figure.Figure, error) {
	b, err := r.burst("hub", true)
	if err != nil {
		return nil, err
	}
	beside := fmt.Sprintf("hub %.1f, agent %.1f, Redis %.1f ms", ms(b.hub), ms(b.agent), ms(b.redis))
	if r.comfyui == "" {
		beside += fmt.Sprintf("; the simulated instance %.1f ms", ms(b.instance))
	}
	return []figure.Figure{{
		Name: "cpu", Value: ms(b.hub + b.agent + b.redis), Unit: "ms", Goal: 3, Lower: true, Beside: beside,
	}}, nil
}
