package discord

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// everything names the limit on all calls together.
const everything = ""

// maxHolds bounds the limits that are remembered.
const maxHolds = 10_000

// holds are the limits that are used up, and until when. A call that would break one is
// not made: too many refused calls end in a ban of the address.
type holds struct {
	mu    sync.Mutex
	until map[string]time.Time
}

func newHolds() *holds { return &holds{until: map[string]time.Time{}} }

// wait returns how long a call must wait, for the limit on all calls too if it counts
// among them.
func (h *holds) wait(limit string, now time.Time, counts bool) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	until := h.until[limit]
	if all := h.until[everything]; counts && all.After(until) {
		until = all
	}
	return until.Sub(now)
}

// hold makes calls wait.
func (h *holds) hold(limit string, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.until) >= maxHolds {
		now := time.Now()
		for name, at := range h.until {
			if at.Before(now) {
				delete(h.until, name)
			}
		}
	}
	if len(h.until) < maxHolds && until.After(h.until[limit]) {
		h.until[limit] = until
	}
}

// note reads from an answer whether another call is allowed now.
func (h *holds) note(limit string, header http.Header, now time.Time) {
	if header.Get("X-RateLimit-Remaining") != "0" {
		return
	}
	const longest = 3600
	seconds, err := strconv.ParseFloat(header.Get("X-RateLimit-Reset-After"), 64)
	if err != nil || !(seconds > 0 && seconds < longest) {
		return
	}
	h.hold(limit, now.Add(time.Duration(seconds*float64(time.Second))))
}
