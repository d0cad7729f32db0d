package dispatch

import (
	"slices"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// Soon is a busy instance that has models loaded.
type Soon struct {
	Idle
	// Free is in how long it will have ended what it runs.
	Free time.Duration
}

// Held is a job that waits for a busy instance with its models loaded, since that one will
// have finished it sooner than an idle one that must load them.
type Held struct {
	Job      job.Job
	Instance string
	// For is how long it waits at most.
	For time.Duration
}

// holds remembers until when jobs wait for a busy instance that has their models loaded.
// When that time is over, the job does not wait like this again. The zero value is empty.
type holds struct {
	mu    sync.Mutex
	until map[string]hold
}

type hold struct {
	instance string
	end      time.Time
}

// maxHolds bounds the jobs that are remembered; most of them have begun long since.
const maxHolds = 10_000

// over returns those of the jobs that have waited long enough.
func (h *holds) over(jobs []job.Job, now time.Time) map[string]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	over := map[string]bool{}
	for _, j := range jobs {
		if held, has := h.until[j.Key]; has && !now.Before(held.end) {
			over[j.Key] = true
		}
	}
	return over
}

// note remembers jobs that wait, and returns when the first of them has waited long
// enough, from now; 0 if there are none.
func (h *holds) note(jobs []Held, now time.Time) (next time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.until == nil || len(h.until) > maxHolds {
		h.until = map[string]hold{}
	}
	for _, j := range jobs {
		held, has := h.until[j.Job.Key]
		if !has {
			held.end = now.Add(j.For)
		}
		held.instance = j.Instance
		h.until[j.Job.Key] = held
		if left := max(held.end.Sub(now), time.Millisecond); next == 0 || left < next {
			next = left
		}
	}
	return next
}

// forget forgets a job that has begun.
func (h *holds) forget(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.until, key)
}

// of returns the instance that a job waits for now; "" if there is none.
func (h *holds) of(key string, now time.Time) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if held := h.until[key]; now.Before(held.end) {
		return held.instance
	}
	return ""
}

// WaitsFor returns the busy instance that a job waits for because it has the job's models
// loaded, "" if there is none.
func (d *Dispatcher) WaitsFor(key string) string { return d.holds.of(key, time.Now()) }

// waitsFor returns the busy instance that a job should wait for rather than load its models
// on the nth free one; nil if there is none. behind are the jobs after it: those that could
// take an instance from it must be free to go before it.
func (p *picking) waitsFor(j job.Job, n int, behind []job.Job) *Held {
	models := p.Models[j.Class]
	if p.Soon == nil || p.Due[j.Key] || p.Waited[j.Key] || len(models) == 0 || p.loaded(j.Class)[n] == len(models) {
		return nil
	}
	free := p.free[n]
	cold, load := p.Ends(j, free.Name)
	if load <= 0 {
		return nil
	}
	if p.soon == nil {
		p.soon = p.Soon()
	}
	first, best := -1, cold+load
	for at, s := range p.soon {
		if s.Free < best && s.can(j) && !slices.Contains(j.FailedAt, s.Name) && common(models, s.Loaded) == len(models) {
			if warm, _ := p.Ends(j, s.Name); s.Free+warm < best {
				first, best = at, s.Free+warm
			}
		}
	}
	if first < 0 {
		return nil
	}
	for _, other := range behind {
		if !mayOvertake(other, j) && slices.ContainsFunc(p.free, func(s spot) bool { return s.can(j) && s.can(other) }) {
			return nil
		}
	}
	chosen := p.soon[first].Name
	p.soon[first].Classes = nil // it takes one job
	return &Held{Job: j, Instance: chosen, For: load}
}

// soon lists the busy instances of which it is known when they will be free, with the
// classes that they can run.
func (d *Dispatcher) soon() []Soon {
	o := &Outlook{d: d, known: map[[2]string]schedule.Estimate{}}
	needy := d.memory.needy()
	var list []Soon
	var idle []Idle
	var infos []*catalog.Info
	for _, conn := range d.connected() {
		i, known := d.Fleet.Instance(conn.name)
		loaded, info, gpu := conn.models(), conn.abilities(), d.gpuOf(conn.name)
		if !known || i.State != fleet.Busy || len(loaded) == 0 || info == nil || !o.foreseen(conn, i, gpu) {
			continue
		}
		s := Soon{Idle: Idle{Name: conn.name, Loaded: loaded, Refused: map[string]bool{}, Tenants: d.reservedFor(conn.name)}, Free: o.left(conn, i, gpu)}
		conn.refused.add(s.Refused)
		d.refused.add(s.Refused)
		d.avoidSmall(needy, i, s.Refused)
		list, idle, infos = append(list, s), append(idle, s.Idle), append(infos, info)
	}
	d.judged.able(idle, infos, d.classes)
	for n := range list {
		list[n].Idle = idle[n]
	}
	return list
}

// ends returns how long a job runs on an instance, and how long it takes to load its models
// there; 0 and 0 if that is not known.
func (d *Dispatcher) ends(j job.Job, instance string) (ran, load time.Duration) {
	e := d.estimate(j.Shape, d.gpuOf(instance))
	if !certain(e) {
		return 0, 0
	}
	return e.Ran, e.Load
}
