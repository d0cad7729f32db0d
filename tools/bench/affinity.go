package main

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Six checkpoints that take five seconds to load, and room for one of them in a GPU.
const (
	modelCount   = 6
	modelLoad    = 5 * time.Second
	affinityLoad = 0.7
)

// modelFile is the name of a checkpoint.
func modelFile(number int) string { return "model" + strconv.Itoa(number) + ".safetensors" }

// affinity compares how often instances load models, behind the hub and behind a queue
// that knows nothing of them.
func affinity(r *rig) ([]figure, error) {
	const instances, count = 30, 1500
	list := arrivals(r.seed, instances, count, affinityLoad)
	random := rand.New(rand.NewPCG(r.seed, 4))
	flags := []string{"--load-time", modelLoad.String(), "--vram", "8GiB"}
	for n := range modelCount {
		flags = append(flags, "--model", "checkpoints/"+modelFile(n+1))
	}
	for n := range list {
		list[n].model = 1 + random.IntN(modelCount)
	}
	urls, _, err := r.instances(instances, r.scale, flags...)
	if err != nil {
		return nil, err
	}
	bound := time.Duration(10 * float64(time.Second) * r.scale) // the default, in simulated time
	h, err := r.fleet("hub", urls, false, "overtaking "+bound.String())
	if err != nil {
		return nil, err
	}
	c := newClient(h.URL(""), 50)
	all, mean, err := r.play(list, c, []*client{c})
	if err != nil {
		return nil, err
	}
	switched, err := switches(r.ctx, c, all)
	if err != nil {
		return nil, err
	}
	blind, blindWait := blindly(list, instances)
	perPrompt := func(n int) float64 { return float64(n) / float64(count) }
	return []figure{{
		name: "affinity", value: perPrompt(switched) / perPrompt(blind), unit: "ratio", goal: 0.5, lower: true,
		beside: fmt.Sprintf("%.2f switches per prompt with the hub, %.2f without; mean wait %.2f s and %.2f s (simulated seconds)",
			perPrompt(switched), perPrompt(blind), mean.Seconds(), blindWait.Seconds()),
	}}, nil
}

// switches counts the prompts before which their instance had another model.
func switches(ctx context.Context, c *client, all []played) (count int, err error) {
	slices.SortFunc(all, func(a, b played) int { return a.began.Compare(b.began) })
	loaded := map[string]int{}
	for _, p := range all {
		var j struct{ Instance string }
		if err := c.call(ctx, http.MethodGet, "/hub/jobs/"+p.id, nil, &j); err != nil {
			return 0, err
		}
		if loaded[j.Instance] != p.model {
			count++
		}
		loaded[j.Instance] = p.model
	}
	return count, nil
}

// blindly is [ideal] with models: it returns how often they are loaded, and the mean wait.
func blindly(list []arrival, instances int) (switches int, mean time.Duration) {
	free := make(moments, instances)
	loaded := map[time.Duration][]int{0: make([]int, instances)} // of those free at a moment
	var waited time.Duration
	for _, a := range list {
		at := free[0]
		start := max(a.at, at)
		waited += start - a.at
		has := loaded[at][0]
		if loaded[at] = loaded[at][1:]; len(loaded[at]) == 0 {
			delete(loaded, at)
		}
		end := start + a.takes
		if has != a.model {
			switches++
			end += modelLoad
		}
		loaded[end] = append(loaded[end], a.model)
		free[0] = end
		heap.Fix(&free, 0)
	}
	return switches, waited / time.Duration(len(list))
}
