package request

import (
	"sync"
	"time"
)

// outage remembers which chats have been told that the hub is away, so that a chat with
// many requests is told once.
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

// over ends the outage: chats are told about the next one.
func (o *outage) over() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.told = nil
}

// absence is what a request knows of an outage of the hub.
type absence struct {
	since time.Time // when it stopped responding; zero while it responds
	known bool      // it has been away for a while
	tells bool      // this request tells its chat
}
