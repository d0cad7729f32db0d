package system

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/scale"
)

// Rental starts and removes machines as hubs tell it: each is an instance with a real agent. It is
// the webhook that a class of theirs has.
type Rental struct {
	w    *World
	web  *http.Server
	rand *rand.Rand

	mu sync.Mutex
	// machines are those that are there, or starting; made counts all.
	machines []*rented
	made     int
	// newest is the highest sequence that was seen, and said what each id means.
	newest int64
	said   map[string]scale.Change
	// extra is how many were started that nobody wanted.
	extra int
	// paid is for how long there were machines that are gone.
	paid time.Duration
	// whims are what goes wrong now.
	whims whims
	// broken is what hubs have done wrong.
	broken []string
}

// RentalConfig is what a class of machines has that come and go by need.
type RentalConfig struct {
	// Seed decides what goes wrong with them.
	Seed uint64
	// Min is how many there are at least, and Budget what all may cost a day: one costs 1 a minute.
	// Default: none, and no limit.
	Min    int
	Budget float64
}

// whims are what goes wrong with calls.
type whims struct {
	// fails lets each call fail, every second one after it was done.
	fails bool
	// slow is how long a call waits before it is done.
	slow time.Duration
	// most is how many machines there can be, if less than wanted. 0 for no bound.
	most int
	// double starts one machine too many, once.
	double bool
	// kills ends the hub that calls: "before" its call is done, or "after". killed are those.
	kills  string
	killed []string
}

const (
	rentalName, rentalAddress = "rental", "rental:443"
	rentalSecret              = "the secret of the rental"
	// rentalMost is how many machines there may be.
	rentalMost = 4
	// rentalIdle is after which time a machine goes.
	rentalIdle = 20 * time.Second
	// rentalPrice is what one costs an hour: one a minute.
	rentalPrice = 60
)

func newRental(w *World) *Rental {
	r := &Rental{w: w, rand: rand.New(rand.NewPCG(w.size.Rental.Seed, 5)), said: map[string]scale.Change{}} // #nosec G404 -- repeatable, not secret
	r.Start()
	return r
}

// Start implements process: the machines are still there.
func (r *Rental) Start() {
	l, err := r.w.Net.Listen(rentalAddress)
	require.NoError(r.w.t, err)
	r.web = &http.Server{ReadHeaderTimeout: time.Minute, Handler: r}
	r.w.work.Go(func() { _ = r.web.Serve(l) })
}

// Kill implements process: nobody reaches the API, and the machines go on.
func (r *Rental) Kill() {
	r.w.Net.Kill(rentalName)
	_ = r.web.Close()
}

// Stop implements process.
func (r *Rental) Stop() { r.Kill() }

// classes are those of a hub.
func (r *Rental) classes(hub string) []scale.Class {
	if r == nil {
		return nil
	}
	return []scale.Class{{
		Name: "gpu", Instances: []string{rentedName + "*"}, Min: r.w.size.Rental.Min, Max: rentalMost, IdleAfter: rentalIdle, Price: rentalPrice, Budget: r.w.size.Rental.Budget,
		Provider: scale.Webhook{URL: "https://" + rentalName + "/gpu", Secret: rentalSecret, Egress: egress.Options{Transport: &plain{r.w.HTTP(hub), rentalAddress}}},
	}}
}

// ServeHTTP takes a call of a hub.
func (r *Rental) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	var c scale.Change
	if err != nil || json.Unmarshal(body, &c) != nil || c.ID == "" || c.ID != req.Header.Get("Webhook-Id") {
		http.Error(w, "no change", http.StatusBadRequest)
		return
	}
	hub, _, _ := net.SplitHostPort(req.RemoteAddr)
	r.mu.Lock()
	whims, late := r.whims, r.rand.IntN(2) == 0
	r.mu.Unlock()
	if whims.kills == "before" {
		r.kill(hub)
		return
	}
	if whims.slow > 0 && !r.w.sleep(whims.slow) {
		return
	}
	if !whims.fails || late {
		r.take(hub, c)
	}
	if whims.kills == "after" {
		r.kill(hub)
	}
	if whims.fails {
		http.Error(w, "out of order", http.StatusInternalServerError)
	}
}

// kill ends the hub that called, once; the fault starts it again.
func (r *Rental) kill(hub string) {
	r.mu.Lock()
	h := r.w.hub(hub)
	if h == nil || r.whims.kills == "" {
		r.mu.Unlock()
		return
	}
	r.whims.kills, r.whims.killed = "", append(r.whims.killed, hub)
	r.mu.Unlock()
	r.w.Trace.Note(nil, "%s is killed in its call", hub)
	h.Kill()
}

// set changes what goes wrong.
func (r *Rental) set(change func(*whims)) (before whims) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before = r.whims
	change(&r.whims)
	return before
}

// take does what a change says, once, unless it has seen a newer one.
func (r *Rental) take(hub string, c scale.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, again := r.said[c.ID]; again && !reflect.DeepEqual(before, c) {
		r.breach("an id means two things: %+v, and from %s %+v", before, hub, c)
	}
	r.said[c.ID] = c
	if c.Start > 0 && c.Wanted+len(c.Remove) > rentalMost {
		r.breach("%s starts %d for %d machines, and removes %v: more than %d", hub, c.Start, c.Wanted, c.Remove, rentalMost)
	}
	if c.Sequence < r.newest {
		r.w.Trace.Note(nil, "%s is late with %d, after %d", hub, c.Sequence, r.newest)
		return
	}
	r.newest = c.Sequence
	r.w.Trace.Note(nil, "%s wants %d, starts %d, removes %v, keeps %v: %s", hub, c.Wanted, c.Start, c.Remove, c.Keep, c.Reason)
	for _, m := range slices.Clone(r.machines) {
		if slices.Contains(c.Remove, m.name) {
			r.remove(m)
		}
	}
	for _, m := range slices.Backward(slices.Clone(r.machines)) { // too many: those that have not joined go
		if len(r.machines) > c.Wanted && !slices.Contains(c.Keep, m.name) {
			r.remove(m)
		}
	}
	wanted := c.Wanted
	if r.whims.most > 0 {
		wanted = min(wanted, r.whims.most)
	}
	if r.whims.double && len(r.machines) < wanted {
		r.whims.double = false
		r.extra++
		wanted++
	}
	for len(r.machines) < wanted {
		r.start()
	}
	if len(r.machines) > rentalMost+r.extra {
		r.breach("there are %d machines, and %d of them nobody wanted", len(r.machines), r.extra)
	}
}

// breach notes what a hub has done wrong.
func (r *Rental) breach(format string, args ...any) {
	r.broken = append(r.broken, fmt.Sprintf(format, args...))
}

// start starts a machine. Some take long, and some never join, as long as there is work.
func (r *Rental) start() {
	r.made++
	m := &rented{w: r.w, name: fmt.Sprint(rentedName, r.made), since: time.Now(), dud: r.rand.IntN(10) == 0 && !closed(r.w.allEnded)}
	takes := []time.Duration{3 * time.Second, 20 * time.Second, 90 * time.Second}[r.rand.IntN(3)]
	r.machines = append(r.machines, m)
	r.w.Trace.Note(nil, "%s starts", m.name)
	r.w.work.Go(func() {
		if r.w.sleep(takes) {
			m.boot(fmt.Sprint(rentedHost, m.name[len(rentedName):]))
		}
	})
}

// remove ends a machine that has nothing to do.
func (r *Rental) remove(m *rented) {
	if n := m.remaining(); n > 0 && !r.w.size.Clocks {
		r.breach("%s is removed, and has %d prompts", m.name, n)
	}
	r.end(m)
}

func (r *Rental) end(m *rented) {
	r.machines = slices.DeleteFunc(r.machines, func(other *rented) bool { return other == m })
	r.paid += time.Since(m.since)
	r.w.Trace.Note(nil, "%s ends", m.name)
	r.w.work.Go(m.end)
}

// reclaim takes a machine away, whatever it does.
func (r *Rental) reclaim() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.machines) > 0 {
		m := r.machines[r.rand.IntN(len(r.machines))]
		r.w.deaths.add(m.name)
		r.end(m)
	}
}

// close ends all machines.
func (r *Rental) close() {
	r.Stop()
	for _, m := range r.all() {
		m.end()
	}
}

// all are the machines that are there.
func (r *Rental) all() []*rented {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.machines)
}

// machine is one by the name of its instance, nil if it is gone.
func (r *Rental) machine(instance string) *rented {
	for _, m := range r.all() {
		if m.name == instance {
			return m
		}
	}
	return nil
}

// bill is for how long there were machines.
func (r *Rental) bill() (paid time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	paid = r.paid
	for _, m := range r.machines {
		paid += time.Since(m.since)
	}
	return paid
}
