package main

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"
)

// fastest is the least factor on simulated times: prompts run up to twenty times as fast as in
// reality. What the hub costs is real, so it counts that much more than it should.
const fastest = 0.05

// headOfLine compares the mean waits behind Caddy's reverse proxy, with two of its policies, and
// behind the hub.
func headOfLine(instances, count int) func(*rig) ([]figure, error) {
	return func(r *rig) ([]figure, error) {
		list := arrivals(r.seed, instances, prompts(r, count), load)
		robin, err := r.proxied(list, instances, "round_robin")
		if err != nil {
			return nil, err
		}
		// Each POST /prompt is answered at once, so this knows no more than round robin.
		fewest, err := r.proxied(list, instances, "least_conn")
		if err != nil {
			return nil, err
		}
		ours, err := r.central(list, instances)
		if err != nil {
			return nil, err
		}
		goals := map[int]float64{8: 25, 30: 200}
		return []figure{{
			name: fmt.Sprintf("hol%d", instances), value: robin.Seconds() / ours.Seconds(), unit: "ratio", goal: goals[instances],
			beside: fmt.Sprintf("mean wait %.1f s with round robin, %.1f s with least_conn, %.2f s with the hub, %.2f s with an ideal FIFO (simulated seconds)",
				robin.Seconds(), fewest.Seconds(), ours.Seconds(), ideal(list, instances).Seconds()),
		}}, nil
	}
}

// firstIn compares the mean wait behind the hub with that of an ideal queue.
func firstIn(instances, count int) func(*rig) ([]figure, error) {
	return func(r *rig) ([]figure, error) {
		list := arrivals(r.seed, instances, prompts(r, count), load)
		ours, err := r.central(list, instances, "order fifo")
		if err != nil {
			return nil, err
		}
		best := ideal(list, instances)
		return []figure{{
			name: fmt.Sprintf("fifo%d", instances), value: ours.Seconds() / best.Seconds(), unit: "ratio", goal: 1.05, lower: true,
			beside: fmt.Sprintf("mean wait %.2f s with the hub, %.2f s with an ideal FIFO (simulated seconds)", ours.Seconds(), best.Seconds()),
		}}, nil
	}
}

// proxied plays a schedule to Caddy's reverse proxy with one of its policies and returns the mean
// wait in simulated time.
func (r *rig) proxied(list []arrival, instances int, policy string) (time.Duration, error) {
	urls, _, err := r.instances(instances, r.scale)
	if err != nil {
		return 0, err
	}
	url, err := r.balance(urls, policy)
	if err != nil {
		return 0, err
	}
	histories := make([]*client, len(urls))
	for n, url := range urls {
		histories[n] = newClient(url, 1)
	}
	defer r.stop()
	_, mean, err := r.play(list, newClient(url, 50), histories)
	return mean, err
}

// central plays a schedule to a hub, given words of its Caddyfile.
func (r *rig) central(list []arrival, instances int, words ...string) (time.Duration, error) {
	urls, _, err := r.instances(instances, r.scale)
	if err != nil {
		return 0, err
	}
	h, err := r.fleet("hub", urls, false, words...)
	if err != nil {
		return 0, err
	}
	c := newClient(h.URL(""), 50)
	defer r.stop()
	_, mean, err := r.play(list, c, []*client{c})
	return mean, err
}

// played is a prompt of a schedule that has run.
type played struct {
	arrival
	id    string
	began time.Time
	// waited is the simulated time between POST and execution_start.
	waited time.Duration
}

// play posts prompts when they are due, waits for the end of all, and returns them with
// their mean wait. Their starts are in the histories.
func (r *rig) play(list []arrival, to *client, histories []*client) (all []played, mean time.Duration, err error) {
	if err := r.warmUp(to, histories, len(list)); err != nil {
		return nil, 0, err
	}
	return r.playWarm(list, to, histories)
}

// warmUp runs a few prompts: nobody waits for connections and code that is new.
func (r *rig) warmUp(to *client, histories []*client, nonce int) error {
	for n := range warm {
		if _, err := to.post(r.ctx, to.body(0, nonce+n)); err != nil {
			return err
		}
	}
	for _, h := range histories {
		if err := h.empty(r.ctx); err != nil {
			return err
		}
	}
	return nil
}

// playWarm is play for servers that have run prompts before.
func (r *rig) playWarm(list []arrival, to *client, histories []*client) (all []played, mean time.Duration, err error) {
	return playBy(r, list, histories, func(n int) (id string, err error) { return to.post(r.ctx, to.bodyOf(list[n], n)) })
}

// playBy is playWarm with a function that posts the nth prompt.
func playBy(r *rig, list []arrival, histories []*client, post func(n int) (id string, err error)) (all []played, mean time.Duration, err error) {
	var (
		mu     sync.Mutex
		posted = make(map[string]time.Time, len(list))
		ids    = make([]string, len(list))
		failed error
		late   time.Duration
		posts  sync.WaitGroup
	)
	begin, before := time.Now(), readLoad()
	for n, a := range list {
		due := begin.Add(time.Duration(float64(a.at) * r.scale))
		select {
		case <-time.After(time.Until(due)):
		case <-r.ctx.Done():
			return nil, 0, r.ctx.Err()
		}
		posts.Go(func() {
			at := time.Now()
			id, err := post(n)
			mu.Lock()
			defer mu.Unlock()
			late += at.Sub(due)
			posted[id], ids[n] = at, id
			if err != nil && failed == nil {
				failed = err
			}
		})
	}
	posts.Wait()
	if failed != nil {
		return nil, 0, failed
	}
	used := before.share(readLoad())
	began, ended := map[string]time.Time{}, map[string]time.Time{}
	for _, h := range histories {
		if err := h.empty(r.ctx); err != nil {
			return nil, 0, err
		}
		for which, of := range map[*map[string]time.Time]func(context.Context) (map[string]time.Time, error){&began: h.began, &ended: h.ended} {
			some, err := of(r.ctx)
			if err != nil {
				return nil, 0, err
			}
			maps.Copy(*which, some)
		}
	}
	var sum time.Duration
	s := strain{late: late / time.Duration(len(list)), used: used}
	for n, id := range ids {
		start, ok := began[id]
		if !ok {
			return nil, 0, fmt.Errorf("prompt %s is in no history", id)
		}
		waited := time.Duration(float64(max(start.Sub(posted[id]), 0)) / r.scale)
		sum += waited
		s.ran += ended[id].Sub(start)
		s.due += time.Duration(float64(list[n].takes) * r.scale)
		all = append(all, played{list[n], id, start, waited})
	}
	mean = sum / time.Duration(len(posted))
	r.say("%d prompts played, mean wait %.2f simulated seconds; %v", len(posted), mean.Seconds(), s)
	return all, mean, s.void(list)
}
