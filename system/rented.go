package system

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// rentedName begins the names of machines that come and go, and of their instances; rentedHost those
// of their servers.
const rentedName, rentedHost = "gpu-", "box"

// rented is a machine that comes and goes: a server, and its agent.
type rented struct {
	w     *World
	name  string
	since time.Time
	// dud says that it never joins.
	dud bool

	mu    sync.Mutex
	comfy *Comfy
	agent *Agent
	gone  bool
}

// boot starts its server and its agent.
func (m *rented) boot(host string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone || m.dud || m.w.ended.Err() != nil {
		return
	}
	m.comfy = newComfy(m.w, host)
	m.agent = newAgent(m.w, m.name, m.comfy)
	m.agent.Start()
	m.w.Trace.Note(nil, "%s is up", m.name)
}

// end is the end of its power.
func (m *rented) end() {
	m.mu.Lock()
	comfy, agent := m.comfy, m.agent
	m.gone = true
	m.mu.Unlock()
	if agent != nil {
		agent.Kill()
		comfy.close()
	}
}

// server is its server, nil before that is up.
func (m *rented) server() *Comfy {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.comfy
}

// remaining is how many prompts it has.
func (m *rented) remaining() int {
	if c := m.server(); c != nil {
		return c.Remaining()
	}
	return 0
}

// withoutGone leaves out the instances whose machines are gone.
func (r *Rental) withoutGone(instances []shownInstance) []shownInstance {
	if r == nil {
		return instances
	}
	return slices.DeleteFunc(instances, func(i shownInstance) bool { return r.w.behind(i.Name) == nil })
}

// closed reports whether a channel is.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// everRented is how many machines there have been: hubs list those that are gone for a day.
func everRented(r *Rental) int {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.made
}

// scaledWithin is how long hubs may take to have as many machines as there are at least, when all is
// quiet: a provider that failed is not called for up to ten minutes, and a machine that did not join
// is waited for as long.
const scaledWithin = 40 * time.Minute

// check checks what hubs have done with the machines, and that no more are left than there are to be
// when nothing is to be done.
func (r *Rental) check(ledger *Ledger) {
	if r == nil {
		return
	}
	for deadline := time.Now().Add(scaledWithin); ; <-time.After(5 * time.Second) {
		left := r.left()
		if left == "" {
			break
		}
		if time.Now().After(deadline) {
			ledger.breach(rentalName, "all prompts have ended, and %v later %s", scaledWithin, left)
			break
		}
	}
	paid := r.bill()
	r.w.Trace.Note(nil, "there were %d machines, for %v", r.made, paid)
	if budget := r.w.size.Rental.Budget; budget > 0 && !r.w.weather.everFaults() {
		// What runs when it is spent may end, and then its machine is removed. One costs 1 a minute.
		if most := budget + rentalMost*overtime.Minutes(); paid.Minutes() > most {
			ledger.breach(rentalName, "the machines were there for %v, and the budget is for %v minutes", paid, budget)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, what := range r.broken {
		ledger.breach(rentalName, "%s", what)
	}
}

// overtime is how long a machine may be there after the budget is spent: for the longest prompt, and
// until it is removed.
const overtime = 90 * time.Second

// left says what is not as it is to be when nothing is to be done, empty if all is.
func (r *Rental) left() string {
	machines := r.all()
	if len(machines) != r.w.size.Rental.Min {
		return fmt.Sprintf("there are %d machines", len(machines))
	}
	for _, h := range r.w.Hubs {
		list, err := h.running.Scaler.Status(r.w.ended)
		if err != nil {
			return err.Error()
		}
		stops, err := h.running.Queue.Stops(r.w.ended)
		if err != nil {
			return err.Error()
		}
		if len(stops) > 0 { // a machine that is away when it is to go may run something for lostAfter
			return fmt.Sprintf("%s stops %v", h.name, stops)
		}
		if s := list[0]; s.Wanted != len(machines) || s.Have != len(machines) || s.Starting != 0 || s.Leaving != 0 || s.Error != "" {
			return fmt.Sprintf("%s says %+v", h.name, s)
		}
	}
	return ""
}

// whim lets calls go wrong in some way.
func whim(change func(*whims)) func(w *World, _ []string) func() {
	return func(w *World, _ []string) func() {
		w.Rental.set(change)
		return func() { w.Rental.set(func(now *whims) { *now = whims{kills: now.kills, killed: now.killed} }) }
	}
}

// killAtACall kills the hub that calls next, and starts it again.
func killAtACall(when string) func(w *World, _ []string) func() {
	return func(w *World, _ []string) func() {
		w.Rental.set(func(now *whims) { now.kills = when })
		return func() {
			killed := w.Rental.set(func(now *whims) { now.kills, now.killed = "", nil }).killed
			for _, hub := range killed {
				w.hub(hub).Start()
			}
		}
	}
}

func withRental(c Config) bool { return c.Rental != nil }

func theRental(*rand.Rand, Config) []string { return []string{rentalName} }

func hubAndRental(r *rand.Rand, c Config) []string { return append(oneHub(r, c), rentalName) }

func rentalAndHub(r *rand.Rand, c Config) []string {
	return append([]string{rentalName}, oneHub(r, c)...)
}

func everyHub(_ *rand.Rand, c Config) (hubs []string) {
	for n := range c.Hubs {
		hubs = append(hubs, fmt.Sprint("hub", 1+n))
	}
	return hubs
}
