package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// strike is one fault of a schedule.
type strike struct {
	kind   kind
	target int
	// at is when it begins, counted from the start of the run.
	at, lasts time.Duration
}

func (s strike) String() string {
	return fmt.Sprintf("%7.2f s  %-15s %-12s for %.1f s", s.at.Seconds(), s.kind.name, s.kind.at(s.target), s.lasts.Seconds())
}

// schedule draws the faults of a run. The same seed draws the same faults.
func schedule(seed uint64, kinds []kind, s *stage, duration, every time.Duration) []strike {
	random := rand.New(rand.NewPCG(seed, 0))
	between := func(low, high time.Duration) time.Duration {
		return low + time.Duration(random.Float64()*float64(high-low))
	}
	kinds = slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool { return k.targets(s) == 0 })
	var all []strike
	// Every kind comes once before any comes again.
	var deck []int
	for at := between(0, every); at < duration && len(kinds) > 0; at += between(every/2, every*3/2) {
		if len(deck) == 0 {
			deck = random.Perm(len(kinds))
		}
		k := kinds[deck[0]]
		deck = deck[1:]
		lasts := k.shortest
		// Most faults are short, few are long.
		if f := random.Float64(); k.longest > k.shortest {
			lasts += time.Duration(f * f * float64(k.longest-k.shortest))
		}
		all = append(all, strike{k, random.IntN(k.targets(s)), at, lasts})
	}
	return all
}

// director carries out a schedule.
type director struct {
	stage *stage
	tally *tally
	log   io.Writer
	well  *availability

	mu     sync.Mutex
	busy   map[string]bool // targets that a fault holds
	struck map[string]int  // faults by kind
}

// run strikes when the schedule says so, and returns when everything has healed. It
// skips a fault whose target is still held by another.
func (d *director) run(ctx context.Context, all []strike) {
	begin := time.Now()
	var work sync.WaitGroup
	for _, s := range all {
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(begin.Add(s.at))):
		}
		if ctx.Err() != nil {
			break
		}
		if d.hold(s.kind.at(s.target), s.kind.also) {
			work.Go(func() { d.strike(ctx, s) })
		}
	}
	work.Wait()
}

// hold reserves the targets of a fault, all or none. An empty name is no target.
func (d *director) hold(targets ...string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, target := range targets {
		if d.busy[target] {
			return false
		}
	}
	for _, target := range targets {
		d.busy[target] = target != ""
	}
	return true
}

func (d *director) strike(ctx context.Context, s strike) {
	target := s.kind.at(s.target)
	fmt.Fprintln(d.log, time.Now().Format("15:04:05.000"), s)
	if s.kind.downs {
		d.well.down(target)
	}
	err := s.kind.strike(d.stage, s.target)
	if err == nil {
		<-time.After(s.lasts)
		err = s.kind.heal(context.WithoutCancel(ctx), d.stage, s.target)
	}
	if err != nil {
		d.tally.breach(ended, "%s at %s: %v", s.kind.name, target, err)
	} else if s.kind.downs {
		d.well.up(target)
	}
	if s.kind.drops {
		d.tally.full()
	}
	fmt.Fprintln(d.log, time.Now().Format("15:04:05.000"), s, "- healed")
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy[target], d.busy[s.kind.also] = false, false
	d.struck[s.kind.name]++
}
