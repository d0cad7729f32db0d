package system

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/comfyhub/comfyhub/system/network"
)

// Fault is something that goes wrong for a while, and heals.
type Fault struct {
	// At is when it begins, after the world has started, and For how long it lasts.
	At, For time.Duration
	Kind    string
	// On are the hosts concerned.
	On []string
}

func (f Fault) String() string {
	return fmt.Sprintf("%v for %v: %s %s", f.At.Round(time.Millisecond), f.For.Round(time.Millisecond), f.Kind, strings.Join(f.On, " "))
}

// kinds are the faults that there are. begin makes one happen, and returns what ends it.
var kinds = []struct {
	name  string
	begin func(w *World, on []string) (heal func())
	// pick chooses the hosts.
	pick func(r *rand.Rand, c Config) []string
}{
	{"kill", func(w *World, on []string) func() {
		p := w.process(on[0])
		p.Kill()
		return p.Start
	}, oneProcess},
	{"restart", func(w *World, on []string) func() {
		p := w.process(on[0])
		p.Stop()
		return p.Start
	}, oneProcess},
	{"freeze", freeze, oneProcess},
	{"freeze", freeze, oneComfy},
	{"freeze", freeze, oneRedis},
	{"die", func(w *World, on []string) func() {
		c := w.comfy(on[0])
		c.Kill()
		return c.Restart
	}, oneComfy},
	{"crash", func(w *World, _ []string) func() {
		w.Redis.Crash(w.size.Forgetful)
		return w.Redis.Start
	}, oneRedis},
	{"cut", func(w *World, on []string) func() {
		w.Net.SetBoth(on[0], on[1], network.Link{Silent: true})
		return func() { w.Net.SetBoth(on[0], on[1], network.Link{}) }
	}, oneLink},
	{"deafen", func(w *World, on []string) func() { // one direction only
		w.Net.Set(on[0], on[1], network.Link{Silent: true})
		return func() { w.Net.Set(on[0], on[1], network.Link{}) }
	}, oneLinkReversed},
	{"slow", func(w *World, on []string) func() {
		w.Net.SetBoth(on[0], on[1], network.Link{Delay: 700 * time.Millisecond})
		return func() { w.Net.SetBoth(on[0], on[1], network.Link{}) }
	}, oneLink},
	{"full disk", disk(DiskState{Full: true, Room: 100 << 10}), theDisk},
	{"broken disk", disk(DiskState{Err: syscall.EIO}), theDisk},
	{"slow disk", disk(DiskState{Delay: 300 * time.Millisecond}), theDisk},
	{"reset", func(w *World, on []string) func() {
		w.Net.Reset(on[0], on[1])
		return func() {}
	}, oneLink},
}

// process is a program that faults can end.
type process interface {
	Start()
	// Stop is SIGTERM, and waits for the end; Kill is kill -9.
	Stop()
	Kill()
}

func (w *World) process(name string) process {
	for _, h := range w.Hubs {
		if h.name == name {
			return h
		}
	}
	for _, a := range w.Agents {
		if a.name == name {
			return a
		}
	}
	w.t.Fatalf("no process %q", name)
	return nil
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

func theDisk(*rand.Rand, Config) []string { return []string{"disk"} }

func oneRedis(*rand.Rand, Config) []string { return []string{"redis"} }

// oneProcess picks a hub or, less often, an agent.
func oneProcess(r *rand.Rand, c Config) []string {
	if c.Agents > 0 && r.IntN(3) == 0 {
		return []string{fmt.Sprint("agent", 1+r.IntN(c.Agents))}
	}
	return []string{fmt.Sprint("hub", 1+r.IntN(c.Hubs))}
}

func oneComfy(r *rand.Rand, c Config) []string {
	return []string{fmt.Sprint("comfy", 1+r.IntN(c.Comfys))}
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

// Faults makes a schedule of faults within a time, the same for the same seed.
func Faults(seed uint64, c Config, within time.Duration) []Fault {
	r := rand.New(rand.NewPCG(seed, 1)) // #nosec G404 -- repeatable, not secret
	var faults []Fault
	at := time.Duration(0)
	for {
		at += time.Duration(1+r.IntN(30_000)) * time.Millisecond
		if at > within {
			return faults
		}
		kind := kinds[r.IntN(len(kinds))]
		// Short faults find races, long ones find what waits for ever.
		lasts := []time.Duration{time.Second, 10 * time.Second, 60 * time.Second}[r.IntN(3)]
		faults = append(faults, Fault{At: at, For: 1 + time.Duration(r.Int64N(int64(lasts))), Kind: kind.name, On: kind.pick(r, c)})
	}
}

// inject makes the faults happen, each on hosts that no other fault has at the time, and
// returns when all have healed.
func (w *World) inject(faults []Fault) {
	began := time.Now()
	busy := map[string]time.Time{}
	for _, f := range faults {
		if !w.sleep(f.At - time.Since(began)) {
			return
		}
		if slices.ContainsFunc(f.On, func(host string) bool { return time.Now().Before(busy[host]) }) {
			continue
		}
		w.weather.begins(f)
		heal := w.begin(f)
		w.Trace.Note(nil, "FAULT %v", f)
		for _, host := range f.On {
			busy[host] = time.Now().Add(f.For + time.Second)
		}
		w.faults.Go(func() {
			<-time.After(f.For) // heals whatever else ends
			heal()
			w.weather.heals(f)
			w.Trace.Note(nil, "healed %s %s", f.Kind, strings.Join(f.On, " "))
		})
	}
}

func (w *World) begin(f Fault) (heal func()) {
	for _, k := range kinds {
		if k.name == f.Kind {
			return k.begin(w, f.On)
		}
	}
	w.t.Fatalf("no fault %q", f.Kind)
	return nil
}

func (w *World) comfy(name string) *Comfy {
	return w.Comfys[slices.IndexFunc(w.Comfys, func(c *Comfy) bool { return c.name == name })]
}
