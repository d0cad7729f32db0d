package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/testing/figure"
)

const (
	// senders is how many connections post at once, span how long they do.
	senders = 50
	span    = 5 * time.Second
	// most bounds what they post: the hub's default queue takes 10,000 prompts.
	most = 9_000
)

// submit compares how many prompts are accepted.
func submit(r *rig) ([]figure.Figure, error) {
	rates := map[string]float64{}
	for _, side := range []string{"proxy", "redis", "embedded"} {
		urls, _, err := r.instances(1)
		if err != nil {
			return nil, err
		}
		var url string
		if side == "proxy" {
			url, err = r.balance(urls, "round_robin")
		} else {
			var h *hub
			if h, err = r.fleet(side, urls, side == "embedded"); err == nil {
				url = h.URL("")
			}
		}
		if err != nil {
			return nil, err
		}
		if rates[side], err = r.accepted(url); err != nil {
			return nil, fmt.Errorf("%s: %w", side, err)
		}
		r.stop()
	}
	beside := fmt.Sprintf("%.0f prompts/s with Redis, %.0f embedded, %.0f through reverse_proxy", rates["redis"], rates["embedded"], rates["proxy"])
	return []figure.Figure{
		{Name: "submit", Value: rates["redis"] / rates["proxy"], Unit: "ratio", Goal: 0.7, Beside: beside},
		{Name: "submit-embedded", Value: rates["embedded"] / rates["proxy"], Unit: "ratio", Goal: 0.5},
	}, nil
}

// accepted posts over many connections and returns how many prompts were accepted in
// a second. The first one runs until the end, so that all others only wait.
func (r *rig) accepted(url string) (float64, error) {
	c := newClient(url, senders)
	if _, err := c.post(r.ctx, c.body(3600, 0)); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(r.ctx, span)
	defer cancel()
	var (
		next, count atomic.Int64
		failed      error
		once        sync.Once
		all         sync.WaitGroup
	)
	begin := time.Now()
	for range senders {
		all.Go(func() {
			for {
				n := next.Add(1)
				if n > most || ctx.Err() != nil {
					return
				}
				_, err := c.post(ctx, c.body(1, int(n)))
				switch {
				case err == nil:
					count.Add(1)
				case ctx.Err() == nil:
					once.Do(func() { failed = err })
					return
				}
			}
		})
	}
	all.Wait()
	return float64(count.Load()) / time.Since(begin).Seconds(), failed
}
