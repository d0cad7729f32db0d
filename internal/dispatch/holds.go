package dispatch

import (
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// holds remembers until when jobs wait for a busy instance that has their models loaded. When that
// time is over, the job does not wait like this again. The zero value is empty.
type holds struct {
	mu    sync.Mutex
	until map[string]hold
}

type hold struct {
	instance string
	end      time.Time
}

// maxHolds bounds the jobs that are remembered; most of them have long begun.
const maxHolds = 10_000

// over returns the jobs that have waited long enough.
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

// note remembers waiting jobs, and returns how long until the first of them has waited long enough;
// 0 if there are none.
func (h *holds) note(jobs []schedule.Held, now time.Time) (next time.Duration) {
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

// of returns the instance that a job is waiting for now; "" if none.
func (h *holds) of(key string, now time.Time) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if held := h.until[key]; now.Before(held.end) {
		return held.instance
	}
	return ""
}
