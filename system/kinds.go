package system

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/comfyhub/comfyhub/system/network"
)

// kind is a kind of faults.
type kind struct {
	name string
	// begin makes one happen, and returns what ends it.
	begin func(w *World, on []string) (heal func())
	// pick chooses the hosts.
	pick func(r *rand.Rand, c Config) []string
	// most is the longest that one lasts. Default: no bound.
	most time.Duration
	// settles is how long after it servers may idle or runs be unknown to them. Default:
	// settled.
	settles time.Duration
	// only says which worlds have such faults. Default: all.
	only func(c Config) bool
}

// kinds are the faults that there are.
var kinds = []kind{
	{name: "kill", begin: kill, pick: oneProcess},
	{name: "restart", begin: func(w *World, on []string) func() {
		p := w.process(on[0])
		p.Stop()
		return p.Start
	}, pick: oneProcess},
	{name: "freeze", begin: freeze, pick: oneProcess},
	{name: "freeze", begin: freeze, pick: oneComfy},
	{name: "freeze", begin: freeze, pick: oneRedis},
	{name: "die", begin: func(w *World, on []string) func() {
		c := w.comfy(on[0])
		c.Kill()
		return c.Restart
	}, pick: oneComfy},
	{name: "crash", begin: func(w *World, _ []string) func() {
		w.Redis.Crash(w.size.Forgetful)
		return w.Redis.Start
	}, pick: oneRedis},
	{name: "cut", begin: cut, pick: oneLink},
	{name: "cut", begin: cut, pick: hubAndRedis, most: 15 * time.Second}, // about as long as a lease
	{name: "deafen", begin: deafen, pick: oneLinkReversed},
	{name: "slow", begin: func(w *World, on []string) func() {
		w.Net.SetBoth(on[0], on[1], network.Link{Delay: 700 * time.Millisecond})
		return func() { w.Net.SetBoth(on[0], on[1], network.Link{}) }
	}, pick: oneLink},
	{name: "drop", begin: func(w *World, on []string) func() { // what was sent to a client is lost, with its connections
		w.silenceClient(on[0], true)
		return func() {
			for _, h := range w.Hubs {
				w.Net.Reset(on[0], h.name)
			}
			w.silenceClient(on[0], false)
		}
	}, pick: oneClient, most: 10 * time.Second, only: func(c Config) bool { return c.Clients > 0 }},
	{name: "mute redis", begin: func(w *World, _ []string) func() { // it does what it is told, and some replies are lost, each with its connection
		w.Redis.answers(network.Link{Lose: everyThird()})
		return func() { w.Redis.answers(network.Link{}) }
	}, pick: oneRedis, most: 10 * time.Second, settles: 3 * time.Second},
	{name: "full disk", begin: disk(DiskState{Full: true, Room: 100 << 10}), pick: theDisk},
	{name: "broken disk", begin: disk(DiskState{Err: syscall.EIO}), pick: theDisk},
	{name: "lying disk", begin: func(w *World, _ []string) func() { return w.Disk.Lie() }, pick: theDisk, only: withDamage},
	{name: "power cut", begin: func(w *World, on []string) func() {
		h := w.hub(on[0])
		h.Kill()
		h.LosePower()
		return h.Start
	}, pick: oneHub, only: withDamage},
	{name: "broken data", begin: func(w *World, on []string) func() {
		h := w.hub(on[0])
		h.Kill()
		repair := h.BreakData()
		h.Start()
		return repair
	}, pick: oneHub, only: withDamage},
	{name: "slow disk", begin: disk(DiskState{Delay: 300 * time.Millisecond}), pick: theDisk},
	{name: "reset", begin: reset, pick: oneLink},
	{name: "full redis", begin: func(w *World, _ []string) func() {
		w.Redis.SetFull(true)
		return func() { w.Redis.SetFull(false) }
	}, pick: oneRedis},
	{name: "slow redis", begin: func(w *World, _ []string) func() {
		w.slowRedis(network.Link{Delay: 300 * time.Millisecond})
		return func() { w.slowRedis(network.Link{}) }
	}, pick: oneRedis},
	{name: "failover", begin: func(w *World, _ []string) func() {
		w.Redis.Replicate()
		return w.Redis.Failover
	}, pick: oneRedis, most: 3 * time.Second, only: func(c Config) bool { return !c.Damage }},
	{name: "kill", begin: kill, pick: theCloud, only: withCloud},
	{name: "cut", begin: cut, pick: hubAndCloud, only: withCloud},
	{name: "deafen", begin: deafen, pick: hubAndCloud, only: withCloud},
	{name: "deafen", begin: deafen, pick: cloudAndHub, only: withCloud},
	{name: "reset", begin: reset, pick: hubAndCloud, only: withCloud},
	{name: "kill", begin: kill, pick: theRental, only: withRental},
	{name: "cut", begin: cut, pick: hubAndRental, only: withRental},
	{name: "deafen", begin: deafen, pick: hubAndRental, only: withRental},
	{name: "deafen", begin: deafen, pick: rentalAndHub, only: withRental},
	{name: "kill at a call", begin: killAtACall("before"), pick: everyHub, only: withRental},
	{name: "kill after a call", begin: killAtACall("after"), pick: everyHub, only: withRental},
	{name: "failing rental", begin: whim(func(w *whims) { w.fails = true }), pick: theRental, only: withRental},
	{name: "slow rental", begin: whim(func(w *whims) { w.slow = 40 * time.Second }), pick: theRental, only: withRental},
	{name: "few machines", begin: whim(func(w *whims) { w.most = 1 }), pick: theRental, only: withRental},
	{name: "two machines for one", begin: whim(func(w *whims) { w.double = true }), pick: theRental, only: withRental},
	{name: "reclaim", begin: func(w *World, _ []string) func() { w.Rental.reclaim(); return func() {} }, pick: theRental, only: withRental},
	{name: "clock ahead", begin: clock(time.Hour), pick: oneRedis, only: withClocks},
	{name: "clock behind", begin: clock(-time.Hour), pick: oneRedis, only: withClocks},
	{name: "reload", begin: func(w *World, on []string) func() {
		h := w.hub(on[0])
		h.Reload(on[1])
		return func() { h.Reload("") }
	}, pick: func(r *rand.Rand, c Config) []string {
		return []string{fmt.Sprint("hub", 1+r.IntN(c.Hubs)), fmt.Sprint("comfy", c.Agents+1+r.IntN(c.Comfys-c.Agents))}
	}, only: func(c Config) bool { return c.Comfys > c.Agents }},
}

// process is a program that faults can end.
type process interface {
	Start()
	// Stop is SIGTERM, and waits for the end; Kill is kill -9.
	Stop()
	Kill()
}

func (w *World) process(name string) process {
	if h := w.hub(name); h != nil {
		return h
	}
	for _, a := range w.Agents {
		if a.name == name {
			return a
		}
	}
	switch name {
	case cloudName:
		return w.Cloud
	case rentalName:
		return w.Rental
	}
	w.t.Fatalf("no process %q", name)
	return nil
}

// hub is one by its name, nil if it is none.
func (w *World) hub(name string) *Hub {
	for _, h := range w.Hubs {
		if h.name == name {
			return h
		}
	}
	return nil
}

func (w *World) comfy(name string) *Comfy {
	return w.Comfys[slices.IndexFunc(w.Comfys, func(c *Comfy) bool { return c.name == name })]
}

func cut(w *World, on []string) func() {
	w.Net.SetBoth(on[0], on[1], network.Link{Silent: true})
	return func() { w.Net.SetBoth(on[0], on[1], network.Link{}) }
}

func kill(w *World, on []string) func() {
	p := w.process(on[0])
	p.Kill()
	return p.Start
}

// deafen cuts one direction.
func deafen(w *World, on []string) func() {
	w.Net.Set(on[0], on[1], network.Link{Silent: true})
	return func() { w.Net.Set(on[0], on[1], network.Link{}) }
}

func reset(w *World, on []string) func() {
	w.Net.Reset(on[0], on[1])
	return func() {}
}

func freeze(w *World, on []string) func() {
	w.Net.Freeze(on[0])
	return func() { w.Net.Thaw(on[0]) }
}

func disk(s DiskState) func(w *World, _ []string) func() {
	return func(w *World, _ []string) func() {
		w.Disk.Set(s)
		return func() { w.Disk.Set(DiskState{}) }
	}
}

// clock lets Redis's clock jump, and jump back.
func clock(by time.Duration) func(w *World, _ []string) func() {
	return func(w *World, _ []string) func() {
		before := w.size.RedisAhead
		w.Redis.SetAhead(before + by)
		return func() { w.Redis.SetAhead(before) }
	}
}

// everyThird is true at every third call.
func everyThird() func() bool {
	var calls atomic.Int64
	return func() bool { return calls.Add(1)%3 == 0 }
}

func withClocks(c Config) bool { return c.Clocks }

func withCloud(c Config) bool { return c.Cloud != "" }

func withDamage(c Config) bool { return c.Damage }

func (w *World) slowRedis(l network.Link) {
	for _, h := range w.Hubs {
		w.Net.SetBoth(h.name, "redis", l)
	}
}

// silenceClient lets a client hear nothing, and nobody hear it.
func (w *World) silenceClient(name string, silent bool) {
	for _, h := range w.Hubs {
		w.Net.SetBoth(name, h.name, network.Link{Silent: silent})
	}
}

func theDisk(*rand.Rand, Config) []string { return []string{"disk"} }

func theCloud(*rand.Rand, Config) []string { return []string{cloudName} }

func hubAndCloud(r *rand.Rand, c Config) []string { return append(oneHub(r, c), cloudName) }

func cloudAndHub(r *rand.Rand, c Config) []string {
	return append([]string{cloudName}, oneHub(r, c)...)
}

func oneRedis(*rand.Rand, Config) []string { return []string{"redis"} }

// oneProcess picks a hub or, less often, an agent.
func oneProcess(r *rand.Rand, c Config) []string {
	if c.Agents > 0 && r.IntN(3) == 0 {
		return []string{fmt.Sprint("agent", 1+r.IntN(c.Agents))}
	}
	return []string{fmt.Sprint("hub", 1+r.IntN(c.Hubs))}
}

func oneHub(r *rand.Rand, c Config) []string { return []string{fmt.Sprint("hub", 1+r.IntN(c.Hubs))} }

func oneComfy(r *rand.Rand, c Config) []string {
	return []string{fmt.Sprint("comfy", 1+r.IntN(c.Comfys))}
}

func oneClient(r *rand.Rand, c Config) []string {
	return []string{clientName(r.IntN(c.Clients))}
}

func hubAndRedis(r *rand.Rand, c Config) []string {
	return []string{fmt.Sprint("hub", 1+r.IntN(c.Hubs)), "redis"}
}

// oneLink picks two hosts that talk to each other.
func oneLink(r *rand.Rand, c Config) []string {
	hub, server := fmt.Sprint("hub", 1+r.IntN(c.Hubs)), 1+r.IntN(c.Comfys)
	switch with := r.IntN(8); {
	case with < 4:
		return []string{hub, "redis"}
	case server > c.Agents:
		return []string{hub, fmt.Sprint("comfy", server)}
	case with < 7:
		return []string{hub, fmt.Sprint("agent", server)}
	}
	return []string{fmt.Sprint("agent", server), fmt.Sprint("comfy", server)}
}

func oneLinkReversed(r *rand.Rand, c Config) []string {
	pair := oneLink(r, c)
	slices.Reverse(pair)
	return pair
}
