package system

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Fault is something that goes wrong for a while, and heals.
type Fault struct {
	// At is when it begins, after the world has started, and For how long it lasts.
	At, For time.Duration
	Kind    string
	// On are the hosts concerned.
	On []string
	// Stays is whether it lasts until all prompts have ended, and For says nothing.
	Stays bool
}

func (f Fault) String() string {
	if f.Stays {
		return fmt.Sprintf("%v for good: %s %s", f.At.Round(time.Millisecond), f.Kind, strings.Join(f.On, " "))
	}
	return fmt.Sprintf("%v for %v: %s %s", f.At.Round(time.Millisecond), f.For.Round(time.Millisecond), f.Kind, strings.Join(f.On, " "))
}

// Faults makes a schedule of faults within a time, the same for the same seed.
func Faults(seed uint64, c Config, within time.Duration) []Fault {
	r := rand.New(rand.NewPCG(seed, 1)) // #nosec G404 -- repeatable, not secret
	if c.Storm {
		return storm(r, c, within)
	}
	possible := slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool { return k.only != nil && !k.only(c) })
	var faults []Fault
	at := time.Duration(0)
	for {
		at += time.Duration(1+r.IntN(30_000)) * time.Millisecond
		if at > within {
			if c.Leave {
				faults = alsoLeave(rand.New(rand.NewPCG(seed, 3)), c, faults) // #nosec G404 -- the same
			}
			if c.Stay {
				faults = alsoStay(rand.New(rand.NewPCG(seed, 4)), c, within, faults) // #nosec G404 -- the same
			}
			return faults
		}
		kind := possible[r.IntN(len(possible))]
		// Short faults find races, long ones find what waits for ever.
		lasts := []time.Duration{time.Second, 10 * time.Second, 60 * time.Second}[r.IntN(3)]
		if kind.most > 0 {
			lasts = min(lasts, kind.most)
		}
		faults = append(faults, Fault{At: at, For: 1 + time.Duration(r.Int64N(int64(lasts))), Kind: kind.name, On: kind.pick(r, c)})
	}
}

// alsoLeave lets a hub end around most failovers, from when the replica falls behind to a second after
// it has taken over: that hub alone may know what the replica lacks.
func alsoLeave(r *rand.Rand, c Config, faults []Fault) []Fault {
	for _, f := range slices.Clone(faults) {
		if f.Kind != "failover" || r.IntN(4) == 0 {
			continue
		}
		leaves := Fault{
			At: f.At + time.Duration(r.Int64N(int64(f.For+time.Second))), For: time.Duration(1+r.IntN(10_000)) * time.Millisecond,
			Kind: []string{"restart", "restart", "kill"}[r.IntN(3)], On: []string{fmt.Sprint("hub", 1+r.IntN(c.Hubs))},
		}
		faults = append(faults, leaves)
	}
	return sorted(faults)
}

// alsoStay adds a fault of a server, an agent or a hub that does not heal while anybody waits.
func alsoStay(r *rand.Rand, c Config, within time.Duration, faults []Fault) []Fault {
	f := Fault{At: time.Duration(r.Int64N(int64(within))), Stays: true}
	var pick func(*rand.Rand, Config) []string
	switch r.IntN(6) {
	case 0:
		f.Kind, pick = "die", oneComfy
	case 1, 2:
		f.Kind, pick = "freeze", oneComfy
	case 3:
		f.Kind, pick = "freeze", oneProcess
	case 4:
		f.Kind, pick = "kill", oneProcess
	default:
		f.Kind, pick = []string{"cut", "deafen"}[r.IntN(2)], oneLink
	}
	f.On = pick(r, c)
	return sorted(append(faults, f))
}

func sorted(faults []Fault) []Fault {
	slices.SortStableFunc(faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return faults
}

// storm makes a schedule in which hubs and Redis are killed, stopped, frozen and started again
// all the time: one fault follows the other within two seconds or so.
func storm(r *rand.Rand, c Config, within time.Duration) (faults []Fault) {
	for at := time.Second; at < within; at += time.Duration(1600+r.IntN(900)) * time.Millisecond {
		f := Fault{At: at, For: time.Duration(500+r.IntN(5500)) * time.Millisecond, On: []string{"redis"}}
		if r.IntN(4) == 0 {
			f.Kind = []string{"freeze", "crash"}[r.IntN(2)]
		} else {
			f.Kind, f.On[0] = []string{"kill", "restart", "freeze"}[r.IntN(3)], fmt.Sprint("hub", 1+r.IntN(c.Hubs))
		}
		faults = append(faults, f)
	}
	return faults
}

// forGood is longer than any world lasts.
const forGood = 24 * time.Hour

// inject makes the faults happen, each on hosts that no other fault has at the time, and
// returns when the last has begun. Which happen, and when, is decided by the schedule alone.
func (w *World) inject(faults []Fault) {
	began := time.Now()
	busy := map[string]time.Duration{}
	healed := map[string]<-chan struct{}{}
	for _, f := range faults {
		if !w.sleep(f.At - time.Since(began)) {
			return
		}
		if slices.ContainsFunc(f.On, func(host string) bool { return f.At < busy[host] }) {
			continue
		}
		for !w.weather.calm(0, f.On...) { // a process that was down may take long to start
			if !w.sleep(100 * time.Millisecond) {
				return
			}
		}
		w.weather.begins(f)
		w.Trace.Note(nil, "FAULT %v", f)
		w.Trace.Decide("faults", "%v", f)
		var before []<-chan struct{}
		done := make(chan struct{})
		for _, host := range f.On {
			busy[host] = f.At + f.For + time.Second
			if f.Stays {
				busy[host] = forGood
			}
			if healed[host] != nil {
				before = append(before, healed[host])
			}
			healed[host] = done
		}
		w.faults.Go(func() {
			defer close(done)
			for _, other := range before {
				<-other // a process may take a while to stop
			}
			kind := w.kind(f)
			heal := kind.begin(w, f.On)
			if f.Stays {
				select {
				case <-w.allEnded:
				case <-w.ended.Done():
				}
			} else {
				<-time.After(f.At + f.For - time.Since(began)) // heals whatever else ends
			}
			heal()
			w.weather.heals(f, cmp.Or(kind.settles, settled))
			w.Trace.Note(nil, "healed %s %s", f.Kind, strings.Join(f.On, " "))
		})
	}
}

func (w *World) kind(f Fault) kind {
	for _, k := range kinds {
		if k.name == f.Kind {
			return k
		}
	}
	w.t.Fatalf("no fault %q", f.Kind)
	return kind{}
}
