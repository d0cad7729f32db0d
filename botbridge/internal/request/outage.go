package request

import (
	"sync"
	"time"
)

// outage remembers which chats have been told that the hub is unavailable, so that
// a chat with many waiting requests is told once.
type outage struct {
	mu   sync.Mutex
	told map[string]bool
}

// tell reports whether a chat must be told now.
func (o *outage) tell(chat string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.told[chat] {
		return false
	}
	if o.told == nil {
		o.told = map[string]bool{}
	}
	o.told[chat] = true
	return true
}

// over ends the outage: everybody is told again of the next one.
func (o *outage) over() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.told = nil
}

// absence is what a request knows of an outage of the hub.
type absence struct {
	since time.Time // it has not answered; zero while it does
	known bool      // it has been so for a while
	tells bool      // this request is the one of its chat that says so
}
