package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// recorded is a prompt that went through real processes, for the simulator of the scheduler:
// internal/dispatch reads it, see dayreplay_test.go there. Times are real ones.
type recorded struct {
	// At is when it was posted, from the first one on. It waited, and then its run took so long.
	At, Waited, Took time.Duration
	Caller           string
	Graph            json.RawMessage
}

// model compares the waits behind a hub with those that the simulator of the scheduler gives
// for the same prompts. Which prompt is next depends on milliseconds, and the mean wait on which
// videos begin first: the simulator runs with several lags, and there are many prompts.
func model(r *rig) ([]figure, error) {
	const instances, count = 8, 1800
	urls, _, err := r.instances(instances, r.scale)
	if err != nil {
		return nil, err
	}
	h, err := r.fleet("hub", urls, false)
	if err != nil {
		return nil, err
	}
	c := newClient(h.URL(""), 50)
	all, mean, err := r.play(arrivals(r.seed, instances, count, load), c, []*client{c})
	if err != nil {
		return nil, err
	}
	list, err := record(r.ctx, c, all, r.scale)
	if err != nil {
		return nil, err
	}
	r.stop()
	of := lagsOf(list, instances)
	var some []lags
	for percent := 80; percent <= 120; percent += 5 {
		some = append(some, of.times(percent))
	}
	means, err := simulated(r, list, instances, some)
	if err != nil {
		return nil, err
	}
	var average float64
	for _, each := range means {
		average += each.Seconds() / float64(len(means))
	}
	return []figure{{
		name: "model", value: apart(average, mean.Seconds()), unit: "ratio", goal: 1.1, lower: true,
		beside: fmt.Sprintf("mean wait %.2f s with the hub, %.2f s in the simulator (from %.2f to %.2f s) where a prompt begins %v after it came, or %v after an instance was free, as here (simulated seconds; these two real ones)",
			mean.Seconds(), average, slices.Min(means).Seconds(), slices.Max(means).Seconds(), of.Idle.Round(time.Millisecond), of.Freed.Round(time.Millisecond)),
	}}, nil
}

// apart is how many times as large as the other one the larger value is.
func apart(a, b float64) float64 { return max(a, b) / min(a, b) }

// record returns prompts that have run, in the order in which they were posted.
func record(ctx context.Context, c *client, all []played, scale float64) (list []recorded, err error) {
	ended, err := c.ended(ctx)
	if err != nil {
		return nil, err
	}
	var first time.Time
	for n, p := range all {
		waited := time.Duration(float64(p.waited) * scale)
		posted := p.began.Add(-waited)
		if first.IsZero() || posted.Before(first) {
			first = posted
		}
		var sent struct{ Prompt json.RawMessage }
		if err := json.Unmarshal(c.bodyOf(p.arrival, n), &sent); err != nil {
			return nil, err
		}
		list = append(list, recorded{
			At: time.Duration(posted.UnixNano()), Took: ended[p.id].Sub(p.began), Caller: fmt.Sprint("c", n), Graph: sent.Prompt, Waited: waited,
		})
	}
	for n := range list {
		list[n].At -= time.Duration(first.UnixNano())
	}
	slices.SortStableFunc(list, func(a, b recorded) int { return cmp.Compare(a.At, b.At) })
	return list, nil
}

// lags are what the hub itself takes until a run begins: of a prompt that finds an idle
// instance, and of one that had to wait until an instance was free.
type lags struct{ Idle, Freed time.Duration }

// lagsOf returns the means of the lags: how long prompts waited while instances were idle.
func lagsOf(list []recorded, instances int) (of lags) {
	type change struct {
		at               time.Duration
		waiting, running int
	}
	var changes []change
	for _, p := range list {
		began := p.At + p.Waited
		changes = append(changes, change{p.At, 1, 0}, change{began, -1, 1}, change{began + p.Took, 0, -1})
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	found := map[time.Duration]bool{} // when prompts came that found an idle instance
	var lost, last time.Duration
	waiting, running := 0, 0
	for _, c := range changes {
		if c.waiting > 0 && waiting+running < instances {
			found[c.at] = true
		}
		lost += (c.at - last) * time.Duration(max(min(waiting, instances-running), 0))
		last, waiting, running = c.at, waiting+c.waiting, running+c.running
	}
	atOnce := 0
	for _, p := range list {
		if found[p.At] {
			of.Idle += p.Waited
			atOnce++
		}
	}
	of.Freed = max(lost-of.Idle, 0) / time.Duration(max(len(list)-atOnce, 1))
	of.Idle /= time.Duration(max(atOnce, 1))
	return of
}

// times returns the lags multiplied by a percentage.
func (l lags) times(percent int) lags {
	return lags{l.Idle * time.Duration(percent) / 100, l.Freed * time.Duration(percent) / 100}
}

// simulated returns the mean waits that the simulator gives with some lags, in simulated time
// like that of play.
func simulated(r *rig, list []recorded, instances int, some []lags) (means []time.Duration, err error) {
	text, err := json.Marshal(map[string]any{"servers": instances, "lags": some, "prompts": list})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(r.dir, "recorded.json"), text, 0o600); err != nil {
		return nil, err
	}
	// #nosec G204 -- the arguments are constants
	test := exec.CommandContext(r.ctx, "go", "test", "./internal/dispatch", "-run", "^TestDayRecorded$", "-count", "1")
	test.Env = append(os.Environ(), "COMFYHUB_DAY_RECORDED="+r.dir)
	if out, err := test.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("the simulator: %w\n%s", err, out)
	}
	if text, err = os.ReadFile(filepath.Join(r.dir, "waits.json")); err != nil {
		return nil, err
	}
	var all [][]time.Duration
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	for _, waits := range all {
		if len(waits) != len(list) {
			return nil, fmt.Errorf("the simulator ran %d of %d prompts", len(waits), len(list))
		}
		var sum time.Duration
		for _, wait := range waits {
			sum += wait
		}
		means = append(means, time.Duration(float64(sum)/r.scale/float64(len(waits))))
	}
	if len(means) != len(some) {
		return nil, fmt.Errorf("the simulator ran %d times, not %d", len(means), len(some))
	}
	return means, nil
}
