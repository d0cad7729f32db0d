package stream

import "time"

// handoverTimeout bounds how long a new socket waits for the other hubs' events for
// its client. What ended there must be shown before what runs here.
const handoverTimeout = 500 * time.Millisecond

// handover is what a new socket of a client waits for: the claims in progress, and what other hubs
// have yet to hand over. The client's lock guards it.
type handover struct {
	claiming int              // claims in progress
	awaited  int              // hubs that have yet to hand over
	answers  map[string]int64 // the owner number for which each hub has handed over
	changed  chan struct{}    // see signal; nil if nobody waits
}

// answered records that a hub has handed over everything it has.
func (h *handover) answered(hub string, owner int64) {
	if h.answers == nil {
		h.answers = map[string]int64{}
	}
	h.answers[hub] = owner
	h.signal()
}

// signal wakes those who wait: a hub has handed over, or a claim has ended.
func (h *handover) signal() {
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// news returns what to wait for until everything for an owner is here, nil if it is. With over,
// nothing is waited for any longer.
func (h *handover) news(owner Owner, over bool) chan struct{} {
	if over || h.complete(owner) {
		h.awaited = 0
	}
	if h.awaited == 0 && (h.claiming == 0 || over) {
		return nil
	}
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	return h.changed
}

// complete reports whether all expected hubs have answered.
func (h *handover) complete(owner Owner) bool {
	n := 0
	for _, number := range h.answers {
		if number >= owner.Number {
			n++
		}
	}
	return n >= h.awaited
}
