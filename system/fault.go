package system

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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
		h := w.hub(on[0])
		h.Kill()
		return h.Start
	}, oneHub},
	{"restart", func(w *World, on []string) func() {
		h := w.hub(on[0])
		h.Stop()
		return h.Start
	}, oneHub},
	{"freeze", freeze, oneHub},
	{"freeze", freeze, oneComfy},
	{"freeze", freeze, func(*rand.Rand, Config) []string { return []string{"redis"} }},
	{"die", func(w *World, on []string) func() {
		c := w.comfy(on[0])
		c.Kill()
		return c.Restart
	}, oneComfy},
	{"crash", func(w *World, _ []string) func() {
		w.Redis.Crash(w.size.Forgetful)
		return w.Redis.Start
	}, func(*rand.Rand, Config) []string { return []string{"redis"} }},
	{"cut", func(w *World, on []string) func() {
		w.Net.SetBoth(on[0], on[1], network.Link{Silent: true})
		return func() { w.Net.SetBoth(on[0], on[1], network.Link{}) }
	}, hubAndOther},
	{"deafen", func(w *World, on []string) func() { // one direction only
		w.Net.Set(on[0], on[1], network.Link{Silent: true})
		return func() { w.Net.Set(on[0], on[1], network.Link{}) }
	}, otherAndHub},
	{"slow", func(w *World, on []string) func() {
		w.Net.SetBoth(on[0], on[1], network.Link{Delay: 700 * time.Millisecond})
		return func() { w.Net.SetBoth(on[0], on[1], network.Link{}) }
	}, hubAndOther},
	{"reset", func(w *World, on []string) func() {
		w.Net.Reset(on[0], on[1])
		return func() {}
	}, hubAndOther},
}

func freeze(w *World, on []string) func() {
	w.Net.Freeze(on[0])
	return func() { w.Net.Thaw(on[0]) }
}

func oneHub(r *rand.Rand, c Config) []string { return []string{fmt.Sprint("hub", 1+r.IntN(c.Hubs))} }

func oneComfy(r *rand.Rand, c Config) []string {
	return []string{fmt.Sprint("comfy", 1+r.IntN(c.Comfys))}
}

func hubAndOther(r *rand.Rand, c Config) []string {
	other := []string{"redis"}
	if r.IntN(2) == 0 {
		other = oneComfy(r, c)
	}
	return append(oneHub(r, c), other...)
}

func otherAndHub(r *rand.Rand, c Config) []string {
	pair := hubAndOther(r, c)
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
		heal := w.begin(f)
		w.Trace.Note(nil, "FAULT %v", f)
		for _, host := range f.On {
			busy[host] = time.Now().Add(f.For + time.Second)
		}
		w.faults.Go(func() {
			<-time.After(f.For) // heals whatever else ends
			heal()
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

func (w *World) hub(name string) *Hub {
	return w.Hubs[slices.IndexFunc(w.Hubs, func(h *Hub) bool { return h.name == name })]
}

func (w *World) comfy(name string) *Comfy {
	return w.Comfys[slices.IndexFunc(w.Comfys, func(c *Comfy) bool { return c.name == name })]
}
